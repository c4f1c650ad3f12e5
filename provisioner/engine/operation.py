"""One operation on one stack: its processes, what they told, and how their end is judged.

An operation may take several processes (`whoami` and `up`, a refresh after
a crash, a repeat once a dead holder's lock is cleared); they share one working
folder, one deadline and one cancellation.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from pulumi.automation import EngineEvent, PulumiFn

from provisioner.engine import recovery
from provisioner.engine.cancellation import Cancellation
from provisioner.engine.changes import Diagnostic, diagnostics
from provisioner.engine.cli import Cli, verb_of
from provisioner.engine.diagnostics import Failure, classify, hopeless
from provisioner.engine.host import Host
from provisioner.engine.process import Cause, Finished, Limits, end_session, process_facts
from provisioner.engine.records import Records, locked
from provisioner.engine.recovery import Holder
from provisioner.engine.state import Lock, StateReader
from provisioner.errors import PermanentError, ProvisionerError, TransientError
from provisioner.tracing import span

HolderAlive = Callable[[Lock], bool | None]
"""Says of a lock's holder on another machine whether it lives; None if that cannot be known."""

Accept = Callable[[Sequence[EngineEvent]], bool]
"""Says whether an operation that failed did what was wanted of it."""


def _never(_events: Sequence[EngineEvent]) -> bool:
    return False


# Operations of which the engine's history is kept per stack: a rollback finds its specification there.
_HISTORY_KEPT = 10
# Two that start at once can both give way to the other's lock; each then finds none.
_LOCK_ATTEMPTS = 3

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Parts:
    """What all operations of an engine share.

    Attributes:
        cli: Starts processes.
        state: Reads the backend.
        records: Changes records; None where only the CLI can.
        grace: Seconds between being asked to stop and being killed.
        holder_alive: Judges holders on other machines.
    """

    cli: Cli
    state: StateReader
    records: Records | None
    grace: float
    holder_alive: HolderAlive


class _Collector:
    """Keeps the events of one process and hands them on; stops a process that tries what cannot succeed.

    Attributes:
        events: So far.
        error: What the listener raised, for the caller.
        hopeless: The diagnostic for which the process was stopped.
    """

    def __init__(self, listener: Callable[[EngineEvent], None] | None, stop: Cancellation) -> None:
        self.events: list[EngineEvent] = []
        self.error: BaseException | None = None
        self.hopeless: Diagnostic | None = None
        self._listener = listener
        self._stop = stop

    def __call__(self, event: EngineEvent) -> None:
        self.events.append(event)
        told = event.diagnostic_event
        words = hopeless(told.message) if told is not None and self.hopeless is None else None
        if told is not None and words is not None:
            self.hopeless = Diagnostic("error", words, told.urn or "")
            self._stop.cancel()
        if self._listener is not None and self.error is None:
            try:
                self._listener(event)
            except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
                self.error = error


class Operation:
    """Runs the processes of one operation on one stack.

    Args:
        parts: What all operations share.
        name: Name of the stack.
        folder: Working folder of its processes.
        deadline: Seconds that it may take in all.
        cancellation: Stops it.
        on_event: Told each event of the engine as it happens.
        backend: URL of another backend than the settings'.
    """

    def __init__(
        self,
        parts: Parts,
        name: str,
        folder: Path,
        *,
        deadline: float,
        cancellation: Cancellation,
        on_event: Callable[[EngineEvent], None] | None = None,
        backend: str | None = None,
    ) -> None:
        self._parts = parts
        self._name = name
        self._folder = folder
        self._seconds = deadline
        self._end = time.monotonic() + deadline
        self._cancellation = cancellation
        self._on_event = on_event
        self._backend = backend

    def run(
        self, arguments: Sequence[str], program: PulumiFn | None = None, *, accept: Accept = _never
    ) -> list[EngineEvent]:
        """Run one engine operation and judge its end; a dead holder's lock is cleared and it is repeated.

        Args:
            arguments: The verb and its options, without the stack.
            program: The inline program, for a verb that runs one.
            accept: Whether a failure with these events is none for the caller.

        Returns:
            The engine's events.

        Raises:
            ProvisionerError: It failed; classified.
        """
        for left in reversed(range(_LOCK_ATTEMPTS)):
            events, error = self._attempt(arguments, program)
            if error is None or accept(events):
                return events
            if error.reason != "StackLocked" or self._parts.records is None or left == 0:
                raise error
            # Raises if any holder lives.
            self.clear_dead_locks()
        raise AssertionError("unreachable")

    def _attempt(
        self, arguments: Sequence[str], program: PulumiFn | None
    ) -> tuple[list[EngineEvent], PermanentError | TransientError | None]:
        stop = Cancellation()
        collector = _Collector(self._on_event, stop)
        with self._cancellation.listen(stop.cancel), Host(program, collector) as host:
            finished = self._process([*arguments, *host.arguments(), "--stack", self._name], stop)
        if collector.error is not None:
            raise collector.error
        if isinstance(host.program_error, ProvisionerError):
            raise host.program_error
        if host.program_error is not None:
            raise PermanentError(
                f"the program of stack {self._name} failed: {type(host.program_error).__name__}: {host.program_error}",
                reason="ProgramFailed",
                hint="this is a fault of the program, not of the cluster",
            ) from host.program_error
        if finished.code == 0:
            return collector.events, None
        if collector.hopeless is not None and not self._cancellation.cancelled:
            failure = Failure(self._name, arguments[0], finished.code, (collector.hopeless,))
            return collector.events, classify(failure)
        return collector.events, self._judged(arguments[0], finished, collector.events)

    def init(self) -> None:
        """Create the stack, without a process where that can be; one that somebody else has just created is as good.

        Raises:
            ProvisionerError: It failed; classified.
        """
        records = self._parts.records
        if records is not None and self._backend is None:
            if not records.laid_out():
                self.lay_out()
            with records.made(self._name):
                return
        finished = self._process(["stack", "init", self._name, "--no-select"])
        if finished.code == 0:
            return
        error = self._judged("stack init", finished, [])
        if error.reason != "StackExists":
            raise error

    def lay_out(self) -> None:
        """Let the engine lay out a backend that is new; its other users may do so at the same time.

        Raises:
            ProvisionerError: It failed; classified.
        """
        # The cheapest command that opens the backend.
        self.plain(["whoami"])

    def plain(self, arguments: Sequence[str]) -> str:
        """Run a command that is no engine operation, and give its output.

        Args:
            arguments: All of them.

        Raises:
            ProvisionerError: It failed; classified.
        """
        finished = self._process(arguments)
        if finished.code != 0:
            raise self._judged(" ".join(arguments[:2]), finished, [])
        return finished.output

    def wait(self, seconds: float, *, what: str) -> None:
        """Let some time pass for objects that are being deleted.

        Args:
            seconds: How long.
            what: Names the objects.

        Raises:
            TransientError: The operation was cancelled, or its deadline is near
                (reason `ObjectTerminating`).
        """
        _log.info("waiting for objects to be gone", name=self._name, objects=what)
        woken = threading.Event()
        with self._cancellation.listen(woken.set):
            woken.wait(seconds)
        if time.monotonic() + seconds >= self._end:
            raise TransientError(
                f"stack {self._name} waits for the old {what} to be gone",
                reason="ObjectTerminating",
                hint="look at its finalizers and at the controllers that should remove them",
            )

    def _process(self, arguments: Sequence[str], stop: Cancellation | None = None) -> Finished:
        left = self._end - time.monotonic()
        if self._cancellation.cancelled:
            raise TransientError(f"operation on stack {self._name} was cancelled", reason="Cancelled")
        if left <= 0:
            raise self._late(arguments[0])
        limits = Limits(left, self._parts.grace, stop or self._cancellation)
        with span(f"pulumi {verb_of(arguments)}", stack=self._name) as traced:
            finished = self._parts.cli.run(arguments, folder=self._folder, limits=limits, backend=self._backend)
            if finished.code != 0:
                traced.fail("EngineFailed", f"exit code {finished.code}, ended by {finished.cause.value}")
        if finished.killed and self._parts.records is not None and self._backend is None:
            self._release(finished.pid)
        return finished

    def _release(self, pid: int) -> None:
        # Killed before it could give its lock back. Nobody else will.
        for lock in self._parts.state.locks(self._name):
            if lock.pid == pid and lock.host == socket.gethostname() and self._parts.records is not None:
                self._parts.records.unlock(lock)

    def _judged(self, verb: str, finished: Finished, events: Sequence[EngineEvent]) -> PermanentError | TransientError:
        if finished.cause is Cause.DEADLINE:
            return self._late(verb)
        if finished.cause is Cause.CANCELLED:
            return TransientError(f"{verb} of stack {self._name} was cancelled", reason="Cancelled")
        return classify(Failure(self._name, verb, finished.code, diagnostics(events), finished.output))

    def _late(self, verb: str) -> TransientError:
        return TransientError(
            f"{verb} of stack {self._name} did not end within {self._seconds:g} s",
            reason="DeadlineExceeded",
            hint="look at the cluster's API server and the state backend; raise PROVISIONER_OPERATION_TIMEOUT "
            "if they are only slow",
        )

    def clear_dead_locks(self) -> None:
        """Clear the locks whose holders are dead.

        Raises:
            TransientError: A holder lives, or that cannot be known (reason
                `StackLocked`).
        """
        records, host = self._parts.records, socket.gethostname()
        if records is None:
            return
        for lock in self._parts.state.locks(self._name):
            holder = recovery.judge(lock, stack=self._name, host=host, facts=process_facts(lock.pid))
            if holder is Holder.UNKNOWN:
                alive = self._parts.holder_alive(lock)
                holder = Holder.DEAD if alive is False else Holder.UNKNOWN
            if holder is not Holder.DEAD:
                raise locked(self._name, lock, records.place(lock.path))
            if lock.host == host and lock.pid != os.getpid():
                # A provider may have outlived it and still be at work.
                end_session(lock.pid)
            _log.info("cleared the lock of a dead process", name=self._name, holder=str(lock))
            records.unlock(lock)

    def recover(self) -> bool:
        """Settle what a killed operation left behind, so that the next one starts from what is true.

        Returns:
            Whether the stack exists.

        Raises:
            PermanentError: The checkpoint and its backup cannot be read.
            TransientError: Somebody else is changing the stack, or the disk of
                the state folder is full.
        """
        records, state = self._parts.records, self._parts.state
        if records is not None:
            records.require_space()
        self.clear_dead_locks()
        try:
            checkpoint = state.checkpoint(self._name)
        except PermanentError as error:
            if error.reason != "StateUnreadable" or records is None or not records.restore(self._name):
                raise
            _log.warning("put the backup in the place of an unreadable checkpoint", name=self._name)
            checkpoint = state.checkpoint(self._name)
        if checkpoint is None:
            return False
        if records is not None:
            records.keep(self._name)
        if checkpoint.pending_operations:
            self._settle_pending()
        return True

    def _settle_pending(self) -> None:
        _log.info("settling what a killed operation left pending", name=self._name)
        records = self._parts.records
        if records is None:
            self.run(["refresh", "--yes", "--skip-preview", "--clear-pending-creates"])
            return
        records.edit(self._name, recovery.adopt)
        self.run(["refresh", "--yes", "--skip-preview"])
        records.edit(self._name, recovery.settle)

    def prune(self) -> None:
        """Bound what the stack's history takes in the backend."""
        if self._parts.records is not None:
            self._parts.records.prune_history(self._name, _HISTORY_KEPT)
