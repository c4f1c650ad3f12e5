"""One process: bounded in time and output, stopped gently first, and never left behind."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.engine.cancellation import Cancellation
from provisioner.engine.process import (
    OUTPUT_LIMIT,
    Cause,
    Finished,
    Limits,
    end_session,
    process_facts,
    run,
    session_members,
)
from provisioner.errors import PermanentError

# Tells that it is ready, ends by itself on SIGINT.
GENTLE = """
import signal, sys, time
def stop(*_):
    print("stopping", flush=True)
    sys.exit(3)
signal.signal(signal.SIGINT, stop)
open("ready", "w").close()
time.sleep(600)
"""
# Leaves a child in a process group of its own, as the CLI does with a provider, and ignores what it is asked.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
open("child", "w").write(str(child.pid))
open("ready", "w").close()
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)


def execute(
    program: str, cwd: Path, *, deadline: float = 120.0, grace: float = 60.0, **options: Cancellation
) -> Finished:
    cancellation = options.get("cancellation") or Cancellation()
    command = [sys.executable, "-c", program]
    return run(command, cwd=cwd, environment=dict(os.environ), limits=Limits(deadline, grace, cancellation))


def test_output_of_both_streams_and_the_code_are_told(tmp_path: Path) -> None:
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(7)"
    finished = execute(program, tmp_path)
    assert finished.output == "out\nerr\n"
    assert (finished.code, finished.cause, finished.killed) == (7, Cause.ITSELF, False)


def test_only_the_environment_given_is_seen(tmp_path: Path) -> None:
    limits = Limits(30, 1, Cancellation())
    program = "import os; print(sorted(os.environ))"
    finished = run([sys.executable, "-c", program], cwd=tmp_path, environment={"ONLY": "1"}, limits=limits)
    # LC_CTYPE is set by Python itself, for its own.
    assert set(ast.literal_eval(finished.output)) - {"LC_CTYPE"} == {"ONLY"}


def test_it_stands_back_for_the_server(tmp_path: Path) -> None:
    # It begins before its priority is set.
    program = "import os, time\nwhile os.nice(0) < 19: time.sleep(0.01)"
    assert execute(program, tmp_path).cause is Cause.ITSELF


def test_the_end_of_a_flood_of_output_is_kept(tmp_path: Path) -> None:
    program = f"print('x' * {10 * OUTPUT_LIMIT}); print('the last line')"
    output = execute(program, tmp_path).output
    assert len(output) <= OUTPUT_LIMIT
    assert output.endswith("the last line\n")


def test_a_process_that_holds_the_pipe_open_does_not_hold_us(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    finished = execute(program, tmp_path)
    assert finished.code == 0
    end_session(finished.pid)


def test_cancellation_is_gentle_first(tmp_path: Path) -> None:
    cancellation = Cancellation()
    result: list[Finished] = []
    thread = threading.Thread(target=lambda: result.append(execute(GENTLE, tmp_path, cancellation=cancellation)))
    thread.start()
    wait_for((tmp_path / "ready").exists)
    cancellation.cancel()
    thread.join(60)
    assert (result[0].code, result[0].cause, result[0].output) == (3, Cause.CANCELLED, "stopping\n")


def test_what_ignores_it_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    cancellation = Cancellation()
    result: list[Finished] = []
    thread = threading.Thread(
        target=lambda: result.append(execute(STUBBORN, tmp_path, grace=0.2, cancellation=cancellation))
    )
    thread.start()
    wait_for((tmp_path / "ready").exists)
    child = int((tmp_path / "child").read_text())
    assert process_facts(child) is not None
    cancellation.cancel()
    thread.join(60)
    assert result[0].killed
    assert result[0].cause is Cause.CANCELLED
    assert process_facts(child) is None


def test_a_cancellation_from_before_the_start_counts(tmp_path: Path) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    assert execute("import time; time.sleep(60)", tmp_path, cancellation=cancellation).cause is Cause.CANCELLED


def test_the_deadline_ends_it(tmp_path: Path) -> None:
    # Not Python, which may still be starting then, and ends in another way.
    limits = Limits(0.3, 60, Cancellation())
    finished = run(["/bin/sleep", "60"], cwd=tmp_path, environment={}, limits=limits)
    assert finished.cause is Cause.DEADLINE
    assert finished.code == -signal.SIGINT


def test_a_signal_from_outside_is_told_and_the_session_is_ended(tmp_path: Path) -> None:
    result: list[Finished] = []
    thread = threading.Thread(target=lambda: result.append(execute(STUBBORN, tmp_path)))
    thread.start()
    wait_for((tmp_path / "ready").exists)
    child = int((tmp_path / "child").read_text())
    facts = process_facts(child)
    assert facts is not None
    os.kill(facts.session, signal.SIGKILL)
    thread.join(60)
    assert (result[0].code, result[0].cause) == (-signal.SIGKILL, Cause.ITSELF)
    assert process_facts(child) is None


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="No such file") as caught:
        run(["/nowhere/pulumi"], cwd=tmp_path, environment={}, limits=Limits(1, 1, Cancellation()))
    assert caught.value.reason == "EngineMissing"
    assert "toolchain install" in caught.value.hint


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    execute("pass", tmp_path)
    before = count()
    for _ in range(5):
        execute("pass", tmp_path)
    # Other tests of this process may have left some that are closed, or threads that open some.
    assert count() < before + 5


def test_facts_of_a_process() -> None:
    before = time.time()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "a-stack"], start_new_session=True)
    try:
        facts = process_facts(process.pid)
        assert facts is not None
        assert facts.session == process.pid
        assert before - 1 <= facts.started <= time.time() + 1
        wait_for(lambda: "a-stack" in (process_facts(process.pid) or facts).command)
        assert session_members(process.pid) == (process.pid,)
        process.kill()
        # It stays a zombie until it is waited for.
        wait_for(lambda: process_facts(process.pid) is None)
    finally:
        process.kill()
        process.wait()
    assert process_facts(process.pid) is None


_AT_THE_LIMIT = """
import os, resource, sys
from pathlib import Path
from provisioner.engine.cancellation import Cancellation
from provisioner.engine.process import Limits, run
from provisioner.errors import TransientError

if os.getuid() == 0:
    os.setuid(65534)  # root has no limit
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    run(["/bin/true"], cwd=Path("/"), environment={}, limits=Limits(10.0, 1.0, Cancellation()))
except TransientError as error:
    print(error.reason, error.hint)
"""


def test_the_limit_of_processes_is_told_and_passes() -> None:
    done = subprocess.run([sys.executable, "-c", _AT_THE_LIMIT], capture_output=True, text=True, timeout=60)
    reason, _, hint = done.stdout.partition(" ")
    assert reason == "ProcessLimit", done.stderr
    assert "ulimit -u" in hint
