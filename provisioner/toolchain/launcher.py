"""The script beside `pulumi` that starts our Python language host.

The engine looks for a program of a fixed name; ours is a Python module that
needs an interpreter with the SDK. The script chooses the first that has it:
that of the active virtual environment, since the program to be run was most
likely written for it; that of the installation; `python3`. A copy of the
module stands beside it: the installation, a checkout perhaps, may be gone by
the time that another one uses the same cache.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from pathlib import Path, PurePosixPath

from provisioner.errors import PermanentError
from provisioner.toolchain import work
from provisioner.toolchain.pins import Pin
from provisioner.toolchain.work import Work

COPY = "provisioner_language_host.py"
"""The copy of the host, in the launcher's folder."""

_SCRIPT = """\
#!/bin/sh
# Starts the Python language host for the Pulumi engine; written by `provisioner toolchain install`.
host={host}
[ -f "$host" ] || host="${{0%/*}}/{copy}"
for python in "${{VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}}" {python} "$(command -v python3)"
do
    if "$python" -P -c \\
        'import importlib.util, sys; sys.exit(importlib.util.find_spec("pulumi") is None)' 2>/dev/null
    then
        exec "$python" -P "$host" "$@"
    fi
done
echo 'no Python 3.11 or newer has the Pulumi SDK: activate a virtual environment with it, or run' \\
    '`provisioner toolchain install --group engine` again' >&2
exit 1
"""


def script(python: Path, host: Path) -> str:
    """The launcher's text.

    Args:
        python: The interpreter of the installation.
        host: The file of the language host.
    """
    return _SCRIPT.format(python=shlex.quote(str(python)), host=shlex.quote(str(host)), copy=COPY)


def host_file() -> Path:
    """The file of our language host.

    Raises:
        PermanentError: This package is not installed as files.
    """
    # Found, not imported: importing it would load the SDK.
    spec = importlib.util.find_spec("provisioner.toolchain.language_host")
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise PermanentError(
            "the language host is not there as a file", reason="BrokenPackage", hint="install this package unpacked"
        )
    return Path(spec.origin)


def write(pin: Pin, working: Work) -> None:
    """Write the launcher and put it in place.

    Args:
        pin: The launcher.
        working: The installation under way.

    Raises:
        PermanentError: It does not start.
    """
    python, host = Path(sys.executable), host_file()
    staged = working.stage / pin.name
    staged.write_text(script(python, host), encoding="utf-8")
    copy = working.stage / COPY
    shutil.copyfile(host, copy)
    beside = {PurePosixPath(COPY): copy}
    work.put_in_place(pin, staged, f"our language host, run by {python}", beside=beside, needs=(python,))
