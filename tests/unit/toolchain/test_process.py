"""A command ends with the call that started it, and with everything it started itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.toolchain import process
from provisioner.toolchain.lock import exclusive
from provisioner.toolchain.process import Limits, last_line

TREE = 'sleep 600 & echo $! > "$OUT.part"; echo $$ >> "$OUT.part"; mv "$OUT.part" "$OUT"; wait'

CALLER = """
import os, sys
from pathlib import Path
from provisioner.toolchain import process
from provisioner.toolchain.lock import exclusive
here = Path(sys.argv[1])
with exclusive(here / "lock", None) as lock:
    process.run(["sh", "-c", sys.argv[2]], log=here / "log", folder=here, environment=os.environ,
                limits=process.Limits(600), lock=lock, tick=lambda line: None)
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def run(tmp_path: Path, script: str, limits: Limits | None = None, seen: list[str] | None = None) -> process.Outcome:
    with exclusive(tmp_path / "lock", None) as lock:
        return process.run(
            ["sh", "-c", script],
            log=tmp_path / "log",
            folder=tmp_path,
            environment={**os.environ, "OUT": str(tmp_path / "pids")},
            limits=limits or Limits(60),
            lock=lock,
            tick=(seen if seen is not None else []).append,
        )


def pids(tmp_path: Path) -> list[int]:
    return [int(word) for word in (tmp_path / "pids").read_text().split()]


def test_exit_code_and_last_line_are_told(tmp_path: Path) -> None:
    assert run(tmp_path, "echo one; echo two >&2; exit 3") == process.Outcome(3, "two")
    assert run(tmp_path, "true").code == 0
    assert run(tmp_path, "kill -9 $$").code == 128 + 9


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock", None) as lock:
        outcome = process.run(
            ["/nowhere/go"],
            log=tmp_path / "log",
            folder=tmp_path,
            environment=os.environ,
            limits=Limits(60),
            lock=lock,
            tick=lambda line: None,
        )
    assert outcome == process.Outcome(127, "cannot start /nowhere/go: No such file or directory")


def test_standard_input_is_closed(tmp_path: Path) -> None:
    assert run(tmp_path, "cat; echo read all").last_line == "read all"


def given_up(tmp_path: Path, script: str, limits: Callable[[float], Limits]) -> None:
    """Give up a script that runs a tree: with ever more time, until the tree was there when it was given up."""
    seconds = 1.0
    while not (tmp_path / "pids").exists():
        assert run(tmp_path, script, limits(seconds)).code is None
        seconds *= 3
    wait_until(lambda: not any(map(alive, pids(tmp_path))))


def test_one_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    given_up(tmp_path, TREE, lambda seconds: Limits(seconds=seconds))


def test_one_that_adds_nothing_is_ended(tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    script = f"echo x > {watched}/file; {TREE}"
    given_up(tmp_path, script, lambda seconds: Limits(300, stall_seconds=seconds, watched=watched))


def test_one_that_keeps_adding_may_go_on(tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    # Longer than it may stand still, and that is longer than a busy machine lets it stand still.
    script = f"for i in $(seq 20); do sleep 0.5; echo $i >> {watched}/file; done"
    assert run(tmp_path, script, Limits(300, stall_seconds=8, watched=watched)).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_caller_and_the_lock_is_free(tmp_path: Path, number: signal.Signals) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tmp_path), TREE],
        env={**os.environ, "OUT": str(tmp_path / "pids")},
        stderr=subprocess.DEVNULL,
    )
    wait_until((tmp_path / "pids").exists)
    started = pids(tmp_path)
    assert all(map(alive, started))
    caller.send_signal(number)
    assert caller.wait(timeout=60) != 0
    told: list[str] = []
    with exclusive(tmp_path / "lock", told.append):
        # Free means that the guard is gone, and it goes together with all it guards.
        wait_until(lambda: not any(map(alive, started)))


def test_the_lock_is_not_free_before_the_build_is_gone(tmp_path: Path) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tmp_path), TREE],
        env={**os.environ, "OUT": str(tmp_path / "pids")},
        stderr=subprocess.DEVNULL,
    )
    wait_until((tmp_path / "pids").exists)
    group = os.getpgid(pids(tmp_path)[0])
    os.killpg(group, signal.SIGSTOP)  # the guard too: it cannot end anything now
    caller.kill()
    caller.wait(timeout=60)
    with pytest.raises(BlockingIOError), exclusive(tmp_path / "lock", None):
        pytest.fail("the lock was free while a build was there")
    os.killpg(group, signal.SIGCONT)
    told: list[str] = []
    with exclusive(tmp_path / "lock", told.append):
        wait_until(lambda: not any(map(alive, pids(tmp_path))))


def test_a_short_command_that_must_not_be_cut_off_ends_first(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom provisioner.toolchain import process\n"
        "here = Path(sys.argv[1])\n"
        "process.run_to_end(['sh', '-c', 'touch begun; while [ ! -e go ]; do sleep 0.05; done; touch whole'],"
        " log=here / 'log', environment=os.environ)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True
    )
    wait_until((tmp_path / "begun").exists)
    os.killpg(caller.pid, signal.SIGINT)
    (tmp_path / "go").touch()
    _, err = caller.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err
    assert (tmp_path / "whole").exists()


def test_progress_is_the_last_line_without_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == ""
    log.write_bytes(b"first\nreading 10%\rreading \x1b[32m90%\x07\xff\n\n  \n")
    assert last_line(log) == "reading [32m90%\ufffd"
    log.write_bytes(b"x" * 100_000 + b"\nthe end\n")
    assert last_line(log) == "the end"
