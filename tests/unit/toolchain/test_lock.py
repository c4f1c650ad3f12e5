"""One installer at a time, whatever becomes of the first."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.toolchain.lock import exclusive

HOLDER = """
import sys, time
from pathlib import Path
from provisioner.toolchain.lock import exclusive
with exclusive(Path(sys.argv[1]), print):
    print("held", flush=True)
    sys.stdin.readline()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until a line is written to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def let_go(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=30)


@pytest.mark.parametrize("end", [let_go, lambda process: process.kill()], ids=["released", "killed"])
def test_the_second_is_told_the_first_and_goes_on_after_it(
    tmp_path: Path, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    first = hold(tmp_path / "lock")
    told: list[str] = []

    def on_wait(holder: str) -> None:
        told.append(holder)
        end(first)

    with exclusive(tmp_path / "lock", on_wait):
        assert first.poll() is not None or first.wait(timeout=30) is not None
    assert len(told) == 1
    assert f"process {first.pid}, since " in told[0]


def test_one_who_does_not_wait_is_turned_away(tmp_path: Path) -> None:
    first = hold(tmp_path / "lock")
    with pytest.raises(BlockingIOError), exclusive(tmp_path / "lock", None):
        pytest.fail("two held the lock at once")
    let_go(first)
    with exclusive(tmp_path / "lock", None):
        pass


def test_who_waits_can_be_interrupted(tmp_path: Path) -> None:
    first = hold(tmp_path / "lock")
    second = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Before it is interrupted it must have come as far as waiting: then it sleeps in its loop.
    wait_until(lambda: (Path("/proc") / str(second.pid) / "fd").exists() and _has_open(second.pid, tmp_path / "lock"))
    os.kill(second.pid, signal.SIGINT)
    assert second.wait(timeout=30) != 0
    second.communicate()
    let_go(first)


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(entry.readlink() == path for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_garbage_in_the_file_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": "x"')
    with exclusive(tmp_path / "lock", None):
        assert str(os.getpid()) in (tmp_path / "lock").read_text()


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
