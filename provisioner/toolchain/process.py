"""Start commands, watch them, and end them with everything they started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from provisioner.toolchain import guard

_POLL_S = 0.25
_GONE_S = 5.0
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Limits:
    """When a command is given up.

    Attributes:
        seconds: After so many seconds in all.
        stall_seconds: After so many seconds in which nothing was added to
            the watched folder; 0 for never.
        watched: That folder.
    """

    seconds: float
    stall_seconds: float = 0.0
    watched: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        code: Its exit code, or None when it was given up.
        last_line: The last line it wrote.
    """

    code: int | None
    last_line: str


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, without control characters."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    for line in reversed(text.replace("\r", "\n").splitlines()):
        clean = "".join(letter for letter in line if letter.isprintable()).strip()
        if clean:
            return clean
    return ""


def bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder, and of the folders' own lists."""
    total = 0
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(OSError):  # it may be renamed while we look
                total += (Path(parent) / name).lstat().st_size
    return total


def _await_group(group: int) -> None:
    # Killed processes vanish a moment later than their leader. A zombie that nobody reaps stays: hence the limit.
    deadline = time.monotonic() + _GONE_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.01)


def run(
    command: Sequence[str],
    *,
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
    limits: Limits,
    lock: int,
    tick: Callable[[str], None],
) -> Outcome:
    """Run a command to its end, with all its output in a log.

    The command and all that it starts end with this call, whether it returns,
    is interrupted, or this very process is killed.

    Args:
        command: The program and its arguments.
        log: The file that its output is added to.
        folder: Where it runs.
        environment: Its whole environment.
        limits: When it is given up.
        lock: Descriptor of the lock that stays taken while it runs.
        tick: Called several times a second with the last line of the log.

    Returns:
        How it ended.
    """
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        guarded = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            pass_fds=(lock,),
        )
    try:
        return Outcome(_wait(guarded, log, limits, tick), last_line(log))
    finally:
        if guarded.stdin is not None:
            guarded.stdin.close()  # the guard ends the group when it was still running
        guarded.wait()
        _await_group(guarded.pid)


def _wait(guarded: subprocess.Popen[bytes], log: Path, limits: Limits, tick: Callable[[str], None]) -> int | None:
    start = grown = time.monotonic()
    size = -1
    while True:
        try:
            return guarded.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            pass
        now = time.monotonic()
        tick(last_line(log))
        if limits.watched is not None and limits.stall_seconds:
            found = bytes_below(limits.watched)
            if found != size:
                size, grown = found, now
            if now - grown > limits.stall_seconds:
                return None
        if now - start > limits.seconds:
            return None


def run_to_end(command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Outcome:
    """Run a short command that must not be cut off in the middle, as dpkg must not.

    It runs in a process group of its own, so that Ctrl-C does not reach it;
    an interruption takes effect once it has ended.

    Args:
        command: The program and its arguments.
        log: The file that its output is added to.
        environment: Its whole environment.
    """
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        started = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        code = started.wait()
    except KeyboardInterrupt:
        started.wait()
        raise
    return Outcome(code, last_line(log))
