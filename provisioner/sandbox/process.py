"""The processes of a sandbox: started on the record, replaced when they should be another, ended exactly.

What a process runs is remembered as a fingerprint of its command line and of
every file that it reads, so that a changed flag, configuration, certificate
or binary is noticed, and no list of who depends on what is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from provisioner.errors import PermanentError, TransientError
from provisioner.sandbox import launch
from provisioner.sandbox.logs import bound_log, tail
from provisioner.sandbox.record import Life, Record, boot_id, is_alive, life

_POLL = 0.05
_END_TIMEOUT = 20.0


@dataclass(frozen=True)
class Mount:
    """One mount inside a new mount namespace, made in the order given.

    Attributes:
        kind: `bind` shows source (a folder or a file) at target; `proc` and
            `tmpfs` are new file systems.
        target: Absolute path.
        source: Absolute path, for `bind`.
    """

    kind: Literal["bind", "proc", "tmpfs"]
    target: str
    source: str = ""


@dataclass(frozen=True)
class Namespaces:
    """Which namespaces a process gets.

    Attributes:
        kinds: Of `user`, `pid`, `mnt` and `net`.
        of: Name of the process whose namespaces are joined; "" makes new ones.
        mounts: For new ones: what is mounted inside.
    """

    kinds: tuple[str, ...]
    of: str = ""
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class ProcessSpec:
    """What one process should be.

    Attributes:
        name: Unique in its sandbox; names its record and its log.
        argv: The program's absolute path and its arguments; never a secret.
        files: What it reads at its start; a change of content replaces it.
        environment: Added to the small environment that all get.
        namespaces: None runs it in the caller's own.
        port: The TCP port that it listens on, for the status.
        grace: Seconds between SIGTERM and SIGKILL.
    """

    name: str
    argv: tuple[str, ...]
    files: tuple[Path, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    namespaces: Namespaces | None = None
    port: int | None = None
    grace: float = 5.0


def fingerprint(spec: ProcessSpec, holder: Record | None = None) -> str:
    """A hash of all that decides how the process behaves.

    Args:
        spec: The process.
        holder: The process whose namespaces it joins: new namespaces mean a
            new process.
    """
    digest = hashlib.sha256()
    program = Path(spec.argv[0]).stat()
    digest.update(repr((spec.argv, sorted(spec.environment.items()), program.st_size, program.st_mtime_ns)).encode())
    digest.update(repr((spec.namespaces, (holder.pid, holder.start, holder.boot) if holder else None)).encode())
    for path in spec.files:
        digest.update(repr(str(path)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class Processes:
    """The recorded processes of one sandbox.

    Args:
        records: Folder of the records, one JSON file per process.
        logs: Folder of the logs, one file per process.
    """

    def __init__(self, records: Path, logs: Path) -> None:
        self._records = records
        self._logs = logs

    def log(self, name: str) -> Path:
        """Where a process writes its output."""
        return self._logs / f"{name}.log"

    def record(self, name: str) -> Record | None:
        """What is known of a process, or None when it was never started."""
        try:
            return Record(**json.loads((self._records / f"{name}.json").read_text()))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """The names of all processes on record."""
        return sorted(path.stem for path in self._records.glob("*.json"))

    def alive(self, name: str) -> bool:
        """Whether the process on record runs."""
        record = self.record(name)
        return record is not None and is_alive(record)

    def ensure(self, spec: ProcessSpec) -> bool:
        """Start a process unless it runs as specified; replace it when it runs otherwise.

        Returns:
            Whether it was started.

        Raises:
            PermanentError: It cannot be started at all.
        """
        holder = self.record(spec.namespaces.of) if spec.namespaces and spec.namespaces.of else None
        wanted = fingerprint(spec, holder)
        record = self.record(spec.name)
        if record is not None and is_alive(record) and record.fingerprint == wanted:
            bound_log(self.log(spec.name))
            return False
        self.stop(spec.name, spec.grace)
        self._start(spec, wanted, holder)
        return True

    def _start(self, spec: ProcessSpec, wanted: str, holder: Record | None) -> None:
        bound_log(self.log(spec.name))
        spaces = spec.namespaces or Namespaces(())
        order = {
            "argv": spec.argv,
            "env": {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
            | spec.environment,
            "cwd": str(self._records.parent),
            "log": str(self.log(spec.name)),
            "record": str(self._records / f"{spec.name}.json"),
            "kinds": spaces.kinds,
            "join": holder.pid if holder else 0,
            "mounts": [asdict(mount) for mount in spaces.mounts],
            "parent": os.getpid(),
            "identity": {"boot": boot_id(), "fingerprint": wanted, "since": time.time(), "port": spec.port},
        }
        done = subprocess.run(
            [sys.executable, "-I", "-S", launch.__file__],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,  # Ctrl-C at our terminal is not meant for it
        )
        if done.returncode != 0:
            raise PermanentError(
                f"{spec.name} could not be started: {done.stderr.strip() or f'exit code {done.returncode}'}",
                reason="StartFailed",
                hint=f"see {self.log(spec.name)}",
            )

    def await_ready(self, spec: ProcessSpec, ready: Callable[[], bool], timeout: float) -> None:
        """Wait until a started process does its work.

        Args:
            spec: The process.
            ready: Its condition; must not block for long.
            timeout: Seconds.

        Raises:
            TransientError: It ended, or is not ready in time; the message has
                the last lines of its log.
        """
        deadline = time.monotonic() + timeout
        while True:
            alive = self.alive(spec.name)
            if alive and ready():
                return
            if alive and time.monotonic() < deadline:
                time.sleep(_POLL)
                continue
            what = f"is not ready after {timeout:.0f} s" if alive else "ended during its start"
            raise TransientError(
                f"{spec.name} {what}; its last words:\n{tail(self.log(spec.name)) or '(none)'}",
                reason="StartFailed",
                hint=f"see {self.log(spec.name)}",
            )

    def stop(self, name: str, grace: float) -> None:
        """End a process and its group, and forget it. Idempotent.

        Args:
            name: The process.
            grace: Seconds between SIGTERM and SIGKILL; 0 kills at once.

        Raises:
            TransientError: It is still there after SIGKILL.
        """
        record = self.record(name)
        if record is not None and life(record) is not Life.GONE:
            self._signal(record, signal.SIGTERM if grace else signal.SIGKILL)
            if grace and not self._await_end(record, grace):
                self._signal(record, signal.SIGKILL)
            if not self._await_end(record, _END_TIMEOUT):
                raise TransientError(f"{name} (pid {record.pid}) does not end after SIGKILL", reason="StopFailed")
        (self._records / f"{name}.json").unlink(missing_ok=True)

    def kill_all(self) -> None:
        """Kill every process on record at once, and forget it.

        With the holder of a PID namespace goes all that is inside.

        Raises:
            TransientError: One is still there after SIGKILL.
        """
        names = self.names()
        for name in names:
            record = self.record(name)
            if record is not None:
                self._signal(record, signal.SIGKILL)
        for name in names:
            self.stop(name, 0)

    @staticmethod
    def _signal(record: Record, number: signal.Signals) -> None:
        if life(record) is Life.GONE:
            return
        try:
            os.killpg(record.pid, number)
        except ProcessLookupError:
            return

    @staticmethod
    def _await_end(record: Record, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while life(record) is not Life.GONE:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL)
        return True
