"""The official installers: much faster than a build, where they can be reached.

Neither can be asked beforehand, and on a machine without a way out they may
hang. So each is run in a process of its own and watched: as long as it adds
something to its folder it may go on, else it is given up after a few seconds
and the build takes its place.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath

from provisioner.errors import PermanentError
from provisioner.toolchain import work
from provisioner.toolchain.pins import Kit, Launcher, Pin
from provisioner.toolchain.process import Limits, Outcome
from provisioner.toolchain.work import Work

STALL_S = 10.0
TOTAL_S = 600.0
_REASON_LENGTH = 100

# A separate process, since the SDK's installer has no time limit of its own. Loading the SDK can take seconds on a
# busy machine: the folder that is made then says that the waiting begins only now.
_INSTALL_CLI = """
import os, socket, sys
from semver import VersionInfo
from pulumi.automation import PulumiCommand
os.makedirs(sys.argv[1])
socket.setdefaulttimeout(5)
PulumiCommand.install(root=sys.argv[1], version=VersionInfo.parse(sys.argv[2]), skip_version_check=True)
"""


def provide(kit: Kit, pins: tuple[Pin, ...], pulumi: Path | None, working: Work) -> bool:
    """Install a kit with its official installer, if it has one and it can be reached.

    Args:
        kit: The kit.
        pins: Its binaries that are wanted.
        pulumi: The Pulumi CLI, which installs providers.
        working: The installation under way.

    Returns:
        Whether it was installed. If not, a note says why.
    """
    try:
        if kit.official == "cli":
            return _install_cli(kit, pins[0], working)
        if kit.official == "plugin" and pulumi is not None:
            return _install_plugin(kit, pins[0], pulumi, working)
    except PermanentError as error:  # what it brought is not what was wanted
        working.note(f"the official installer of {kit.name} brought something else: {error}; building it instead")
    return False


def _attempt(pin: Pin, command: list[str], environment: dict[str, str], working: Work) -> bool:
    log = working.log_of(f"{pin.name}-official")
    log.unlink(missing_ok=True)
    outcome = working.run(f"{pin.name}-official", command, environment, limits=Limits(TOTAL_S, STALL_S, working.stage))
    if outcome.code == 0:
        return True
    working.note(f"the official installer of {pin.name} cannot be used ({_why(outcome)}): building it instead")
    return False


def _why(outcome: Outcome) -> str:
    if outcome.code is None:
        return f"no answer within {STALL_S:.0f} s"
    line = outcome.last_line or "no reason given"
    return line if len(line) <= _REASON_LENGTH else f"...{line[-_REASON_LENGTH:]}"


def _install_cli(kit: Kit, pin: Pin, working: Work) -> bool:
    root = working.stage / "official"
    command = [sys.executable, "-P", "-c", _INSTALL_CLI, str(root), kit.version.removeprefix("v")]
    if not _attempt(pin, command, dict(os.environ), working):
        return False
    binaries = root / "bin"
    work.put_in_place(pin, binaries / pin.name, "the official installer")
    _adopt_language_host(pin, binaries, working)
    return True


def _adopt_language_host(pulumi: Pin, binaries: Path, working: Work) -> None:
    """Take over the official language host that came with the CLI; ours is then not needed."""
    from provisioner.toolchain import pins

    launcher = next(pin for pin in pins.load().every() if isinstance(pin.origin, Launcher))
    staged, helper = binaries / launcher.name, binaries / f"{launcher.name}-exec"
    if launcher.home == pulumi.home and staged.exists() and helper.exists():
        beside = {PurePosixPath(helper.name): helper}
        work.put_in_place(launcher, staged, "the official installer", beside=beside)
    else:
        working.note("the official installer brought no Python language host: using our own")


def _install_plugin(kit: Kit, pin: Pin, pulumi: Path, working: Work) -> bool:
    home = working.stage / "official-home"
    name = kit.name.removeprefix("pulumi-resource-")
    command = [str(pulumi), "plugin", "install", "resource", name, kit.version, "--non-interactive"]
    environment = {**os.environ, "PULUMI_HOME": str(home), "PULUMI_SKIP_UPDATE_CHECK": "true"}
    if not _attempt(pin, command, environment, working):
        return False
    staged = home / "plugins" / kit.home.name / pin.name
    work.put_in_place(pin, staged, "pulumi plugin install")
    return True
