"""One CLI process: in a session of its own, bounded in time and output, and never left behind.

The Automation API's own runner knows neither a deadline nor a way to stop, and
its child shares the server's process group, so that a Ctrl-C meant for the
server hits every running operation at once. Here each process leads a session.
Providers put themselves into process groups of their own but stay in it, so
after an unnatural end the whole session is found and ended.

Asked to stop, the CLI finishes what is in flight, saves the checkpoint and
gives its lock back; that is one SIGINT. Only what has not ended after the
grace is killed.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

from provisioner.engine.cancellation import Cancellation
from provisioner.errors import PermanentError, TransientError

OUTPUT_LIMIT = 256 * 1024
"""Bytes of a process's output that are kept; the last ones, since errors come last."""

_KILL_PATIENCE = 5.0
# The engine stands back as far as it can: many of them at once must not keep the server from its answers.
_NICENESS = 19


class Cause(Enum):
    """Why a process ended."""

    ITSELF = "itself"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


@dataclass(frozen=True)
class Limits:
    """When a process is stopped.

    Attributes:
        deadline: Seconds that it may take.
        grace: Seconds between being asked to stop and being killed.
        cancellation: Stops it at any time.
    """

    deadline: float
    grace: float
    cancellation: Cancellation


@dataclass(frozen=True)
class Finished:
    """How a process ended.

    Attributes:
        pid: The pid that it had.
        code: Exit code; negative when a signal ended it.
        cause: Why it ended.
        output: The last of what it printed, both streams in the order of arrival.
    """

    pid: int
    code: int
    cause: Cause
    output: str

    @property
    def killed(self) -> bool:
        """Whether a signal ended it before it could clean up."""
        return self.code < 0


class _Tail:
    """Keeps the last bytes of a stream."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def fill(self, stream: IO[bytes]) -> bool:
        """Take what lies in a non-blocking stream; False at its end."""
        with suppress(BlockingIOError):
            while data := os.read(stream.fileno(), 65536):
                self._kept += data
                if len(self._kept) > 2 * OUTPUT_LIMIT:
                    del self._kept[:-OUTPUT_LIMIT]
            return False
        return True

    def text(self) -> str:
        return bytes(self._kept[-OUTPUT_LIMIT:]).decode("utf-8", "replace")


def run(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], limits: Limits) -> Finished:
    """Run one process to its end.

    Args:
        command: The program and its arguments; never a secret.
        cwd: Its working directory.
        environment: Its whole environment.
        limits: When it is stopped.

    Returns:
        How it ended. It and everything it started are gone.

    Raises:
        PermanentError: The program cannot be started.
        TransientError: The machine has no room for another process just now.
    """
    with ExitStack() as stack:
        wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        stack.callback(os.close, wake)
        stack.enter_context(limits.cancellation.listen(lambda: os.eventfd_write(wake, 1)))
        process = stack.enter_context(_start(command, cwd, environment))
        finished = _supervise(process, wake, limits)
    if finished.killed or finished.cause is not Cause.ITSELF:
        end_session(finished.pid)
    return finished


def _start(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
        with suppress(ProcessLookupError):  # it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    except BlockingIOError as error:
        raise TransientError(
            f"cannot start {command[0]}: the limit of processes is reached",
            reason="ProcessLimit",
            hint="raise the limit of processes (ulimit -u, or the pod's), or lower PROVISIONER_WORKERS",
        ) from error
    except OSError as error:
        raise PermanentError(
            f"cannot start {command[0]}: {error.strerror}",
            reason="EngineMissing",
            hint="run `provisioner toolchain install engine`",
        ) from error
    return process


def _supervise(process: subprocess.Popen[bytes], wake: int, limits: Limits) -> Finished:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        cause, tail = _watch(process, process.stdout, wake, limits)
    except BaseException:
        # The thread itself is being ended (Ctrl-C): what it started must not outlive it.
        _signal(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(limits.grace)
        _signal(process.pid, signal.SIGKILL)
        end_session(process.pid)
        raise
    return Finished(process.pid, process.wait(), cause, tail.text())


def _watch(process: subprocess.Popen[bytes], output: IO[bytes], wake: int, limits: Limits) -> tuple[Cause, _Tail]:
    tail, cause = _Tail(), Cause.ITSELF
    stop_at: float | None = time.monotonic() + limits.deadline
    # Whoever holds the other end may outlive the CLI, so the pipe's end is not waited for.
    os.set_blocking(output.fileno(), False)
    with selectors.DefaultSelector() as selector, _pidfd(process.pid) as ended:
        for source in (output, wake, ended):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {
                key.fileobj
                for key, _ in selector.select(None if stop_at is None else max(0.0, stop_at - time.monotonic()))
            }
            if ended in ready:
                tail.fill(output)
                return cause, tail
            if output in ready and not tail.fill(output):
                selector.unregister(output)
            if cause is Cause.ITSELF and (wake in ready or not ready):
                cause = Cause.CANCELLED if wake in ready else Cause.DEADLINE
                selector.unregister(wake)
                stop_at = time.monotonic() + limits.grace
                _signal(process.pid, signal.SIGINT)
            elif stop_at is not None and time.monotonic() >= stop_at:
                stop_at = None
                _signal(process.pid, signal.SIGKILL)


class _pidfd:
    """A file descriptor that becomes readable when a process ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> int:
        self._descriptor = os.pidfd_open(self._pid)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def end_session(session: int) -> None:
    """Kill every process of a session whose leader has ended, and wait until none is left.

    One that hangs in the kernel cannot be ended by anybody and is waited for
    only some seconds; it dies when the kernel lets go of it.

    A session's number is not given away while a member lives, so no stranger
    can be hit.

    Args:
        session: Pid of the process that led it.
    """
    give_up = time.monotonic() + _KILL_PATIENCE
    while (members := session_members(session)) and time.monotonic() < give_up:
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def session_members(session: int) -> tuple[int, ...]:
    """The living processes of a session (zombies do not count).

    Args:
        session: Pid of the process that led it.
    """
    return tuple(
        pid
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        if (facts := process_facts(pid)) is not None and facts.session == session
    )


@dataclass(frozen=True)
class ProcessFacts:
    """What the kernel says of a process.

    Attributes:
        session: Pid of its session's leader.
        started: When it started, in seconds since the epoch.
        command: Its arguments.
    """

    session: int
    started: float
    command: tuple[str, ...]


def process_facts(pid: int) -> ProcessFacts | None:
    """What the kernel says of a process; None when there is none, or only its remains.

    Args:
        pid: Which.
    """
    folder = Path("/proc") / str(pid)
    try:
        # The name in parentheses may hold anything, a parenthesis too.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        command = tuple((folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0"))
    except (OSError, IndexError):
        return None
    state, session, ticks = fields[0], int(fields[3]), int(fields[19])
    if state in {"Z", "X"}:
        return None
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return ProcessFacts(session, booted + ticks / os.sysconf("SC_CLK_TCK"), command)
