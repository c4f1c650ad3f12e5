import dataclasses
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.errors import PermanentError, TransientError
from provisioner.sandbox import logs
from provisioner.sandbox.logs import bound_log
from provisioner.sandbox.process import Namespaces, Processes, ProcessSpec
from provisioner.sandbox.record import is_alive

SH, SLEEP = shutil.which("sh"), shutil.which("sleep")


def spec(*argv: str, **more) -> ProcessSpec:
    return ProcessSpec("p", argv or (SLEEP, "600"), **more)


def until(condition, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    for name in ("run", "log"):
        (tmp_path / name).mkdir()
    made = Processes(tmp_path / "run", tmp_path / "log")
    yield made
    for name in made.names():
        made.stop(name, 0)


def test_a_process_is_started_once_in_a_session_of_its_own(processes: Processes) -> None:
    assert processes.ensure(spec())
    assert not processes.ensure(spec())
    record = processes.record("p")
    assert os.getsid(record.pid) == os.getpgid(record.pid) == record.pid


def test_it_outlives_its_starter_and_is_not_a_child_of_ours(processes: Processes) -> None:
    processes.ensure(spec())
    status = Path(f"/proc/{processes.record('p').pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}\n" not in status


def test_what_died_is_started_again(processes: Processes) -> None:
    processes.ensure(spec())
    first = processes.record("p")
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not is_alive(first))
    assert processes.ensure(spec())
    assert processes.record("p") != first
    assert processes.alive("p")


@pytest.mark.parametrize("change", ["argv", "file", "environment"])
def test_what_changed_is_replaced(processes: Processes, tmp_path: Path, change: str) -> None:
    config = tmp_path / "config"
    config.write_text("1")
    processes.ensure(spec(files=(config,)))
    first = processes.record("p")
    changed = spec(files=(config,))
    if change == "argv":
        changed = dataclasses.replace(changed, argv=(SLEEP, "601"))
    elif change == "file":
        config.write_text("2")
    else:
        changed = dataclasses.replace(changed, environment={"A": "1"})
    assert processes.ensure(changed)
    assert not is_alive(first)


def test_a_foreign_process_with_the_same_pid_is_never_signalled(processes: Processes, tmp_path: Path) -> None:
    processes.ensure(spec())
    record = processes.record("p")
    path = tmp_path / "run" / "p.json"
    honest = path.read_text()
    for lie in ({"start": record.start - 1}, {"boot": "another"}):
        path.write_text(json.dumps(dataclasses.asdict(record) | lie))
        processes.stop("p", 0)
        assert is_alive(record)
    path.write_text(honest)
    processes.stop("p", 0)
    assert not is_alive(record)


def test_a_stubborn_process_is_killed_with_its_whole_group(processes: Processes, tmp_path: Path) -> None:
    script = f"trap '' TERM; {SLEEP} 600 & echo $! > child; while :; do wait; done"
    processes.ensure(spec(SH, "-c", script))
    child = tmp_path / "child"
    until(lambda: child.exists() and child.read_text().strip())
    processes.stop("p", 0.2)
    until(lambda: not Path(f"/proc/{child.read_text().strip()}").exists())
    processes.stop("p", 0.2)


def test_a_program_that_is_not_there_leaves_no_record(processes: Processes, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no program")
    broken.chmod(0o755)
    with pytest.raises(PermanentError, match="p could not be started"):
        processes.ensure(spec(str(broken)))
    assert processes.names() == []


def test_an_early_end_shows_the_last_words_and_where_the_rest_is(processes: Processes, tmp_path: Path) -> None:
    dying = spec(SH, "-c", "echo first; echo the port is taken >&2; exit 3")
    processes.ensure(dying)
    with pytest.raises(TransientError, match="ended during its start") as caught:
        processes.await_ready(dying, lambda: False, timeout=20)
    assert "the port is taken" in str(caught.value)
    assert str(tmp_path / "log" / "p.log") in caught.value.hint


def test_never_ready_is_said(processes: Processes) -> None:
    processes.ensure(spec())
    with pytest.raises(TransientError, match="not ready after"):
        processes.await_ready(spec(), lambda: False, timeout=0.1)


def test_a_large_log_is_cut_while_its_writer_goes_on(processes: Processes, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "LOG_LIMIT", 4096)
    go, log = tmp_path / "go", processes.log("p")
    script = f"yes | head -c 9000; echo end; while [ ! -e {go} ]; do {SLEEP} 0.02; done; echo after; exec {SLEEP} 600"
    processes.ensure(spec(SH, "-c", script))
    until(lambda: log.read_text().endswith("end\n"))
    bound_log(log)
    assert log.stat().st_size == 0
    assert log.with_suffix(".log.1").read_text().endswith("end\n")
    assert log.with_suffix(".log.1").stat().st_size <= 4096
    go.touch()
    until(lambda: log.read_text() == "after\n")


@pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root")
def test_ending_the_holder_of_a_namespace_ends_all_inside_and_its_successor_waits_for_that(
    processes: Processes, tmp_path: Path
) -> None:
    holder = ProcessSpec("holder", (SH, "-c", f"{SLEEP} 600 & wait"), namespaces=Namespaces(("pid",)), grace=0)
    # It gives the kernel something to do at its end.
    script = f"for i in $(seq 200); do {SLEEP} 600 & done; wait"
    inside = ProcessSpec("inside", (SH, "-c", script), namespaces=Namespaces(("pid",), of="holder"))
    for _ in range(5):
        processes.ensure(holder)
        assert processes.ensure(inside)
        first = processes.record("inside")
        os.kill(processes.record("holder").pid, signal.SIGKILL)
        until(lambda first=first: not is_alive(first))
    processes.stop("holder", 0)
    assert processes.names() == ["inside"]
