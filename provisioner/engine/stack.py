"""The handle of a stack: bring it up, look at what that would change, take it down.

Process counts are a promise: one for a create, a repeat or an update, one for a
destroy, none for a look; one more (`whoami`) for the very first create in a
backend, and (`stack init`) for each where the backend is not read directly.
They hold because everything else is known without asking: versions from the
toolchain, existence and locks from the backend itself, changes and outputs from
the events.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pulumi.automation import EngineEvent, PulumiFn

from provisioner.engine.cancellation import Cancellation
from provisioner.engine.changes import (
    ChangeSummary,
    UpResult,
    on_their_way_out,
    outputs,
    still_in_the_way,
    summarize,
)
from provisioner.engine.checkpoint import Component
from provisioner.engine.cli import Cli, OnProcess
from provisioner.engine.location import locate
from provisioner.engine.operation import HolderAlive, Operation, Parts
from provisioner.engine.records import Records
from provisioner.engine.state import StateReader
from provisioner.engine.store import Store
from provisioner.engine.tombstones import Tombstones
from provisioner.errors import PermanentError, UsageError
from provisioner.settings import Settings

# No underscore: the engine's database backend takes it for a wildcard.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
# Seconds between two looks at an object that is being deleted.
_TERMINATION_POLL = 1.0
_YES = ("--yes", "--skip-preview")
_QUIET = ("--suppress-outputs", "--suppress-progress")


def _unknown(_lock: object) -> None:
    """Nothing is known of other machines."""


class Engine:
    """Runs Pulumi for one backend and one cluster; one per server, safe for several threads.

    No process is started, and no folder made, before the first operation.

    Args:
        settings: Backend, passphrase, cluster and time limits.
        on_process: Told the command of each process just before it starts.
        holder_alive: Says of a lock's holder on another machine whether it
            lives. Without it such a lock is never cleared.

    Attributes:
        state: Reads the backend.
        tombstones: Which requests were withdrawn.

    Example:
        >>> engine = Engine(Settings())
        >>> engine.stack("graph-t74whaj3ye").name
        'graph-t74whaj3ye'
    """

    def __init__(
        self,
        settings: Settings,
        *,
        on_process: OnProcess | None = None,
        holder_alive: HolderAlive = _unknown,
    ) -> None:
        location = locate(settings.backend)
        store = Store(location) if location is not None else None
        self._settings = settings
        self._cli = Cli(settings, on_process)
        self.state = StateReader(store, self._ask)
        self.tombstones = Tombstones(store)
        records = Records(store, self.state) if store is not None else None
        self._parts = Parts(self._cli, self.state, records, settings.cancel_grace, holder_alive)
        self._lock = threading.Lock()
        self._running: dict[str, list[Cancellation]] = {}

    def stack(self, name: str) -> Stack:
        """The handle of a stack, which need not exist.

        Args:
            name: Letters, digits and dashes, at most 100.

        Raises:
            UsageError: The name is none.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is no name of a stack",
                reason="InvalidStackName",
                hint="use letters, digits and dashes, at most 100",
            )
        return Stack(self, name)

    def _ask(self, arguments: Sequence[str]) -> str:
        with self._operation("", None, None, None) as operation:
            return operation.plain(arguments)

    @contextmanager
    def _operation(
        self,
        name: str,
        deadline: float | None,
        cancellation: Cancellation | None,
        on_event: Callable[[EngineEvent], None] | None,
        backend: str | None = None,
    ) -> Iterator[Operation]:
        cancellation = cancellation or Cancellation()
        with self._lock:
            self._running.setdefault(name, []).append(cancellation)
        try:
            with self._cli.folder() as folder:
                yield Operation(
                    self._parts,
                    name,
                    folder,
                    deadline=deadline if deadline is not None else self._settings.operation_timeout,
                    cancellation=cancellation,
                    on_event=on_event,
                    backend=backend,
                )
        finally:
            with self._lock:
                self._running[name].remove(cancellation)
                if not self._running[name]:
                    del self._running[name]

    def _cancel(self, name: str) -> bool:
        with self._lock:
            running = tuple(self._running.get(name, ()))
        for cancellation in running:
            cancellation.cancel()
        return bool(running)


def _accept_old_objects(events: Sequence[EngineEvent]) -> bool:
    return bool(still_in_the_way(events))


class Stack:
    """One stack. Every method may be called from any thread.

    All operations take the same options: `deadline` in seconds for the whole
    operation (the settings' `operation_timeout` by default), `cancellation` to
    stop it, `on_event` to be told each event of the engine as it happens. All
    raise `ProvisionerError`s with the reasons of `engine.diagnostics`, and
    `TransientError`s with the reasons `StackLocked`, `Cancelled` and
    `DeadlineExceeded`.

    Args:
        engine: Its engine.
        name: Its name.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    def exists(self) -> bool:
        """Whether the backend has a record of it."""
        return self._engine.state.exists(self.name)

    @contextmanager
    def begun(self, component: Component) -> Iterator[bool]:
        """Hold a stack that did not exist, its component recorded, while its objects are made by somebody else.

        No process is started, but in a backend that is new. The next `up` takes
        over what is made under the field manager that its program names.

        Args:
            component: That of the program.

        Yields:
            Whether it is held: not if it exists, or if only the CLI can make it.

        Raises:
            ProvisionerError: Somebody else is changing it (reason `StackLocked`),
                the disk of the state folder is full, or the engine cannot lay
                out a new backend.
        """
        records = self._engine._parts.records
        if records is None or self.exists():
            yield False
            return
        records.require_space()
        if self._engine.state.locks(self.name):
            self.unlock()
        if not records.laid_out():
            with self._engine._operation(self.name, None, None, None) as operation:
                operation.lay_out()
        with records.made(self.name, component) as anew:
            yield anew

    def up(
        self,
        program: PulumiFn,
        *,
        deadline: float | None = None,
        cancellation: Cancellation | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
        refresh: bool = False,
    ) -> UpResult:
        """Bring the stack to what the program registers; create it when it does not exist.

        Args:
            program: The inline program.
            deadline: Seconds that it may take.
            cancellation: Stops it.
            on_event: Told each event of the engine.
            refresh: Look at each object first, so that what somebody else
                changed or deleted is put right.

        Returns:
            What changed, and the stack's outputs.
        """
        with self._engine._operation(self.name, deadline, cancellation, on_event) as operation:
            if not operation.recover():
                operation.init()
            words = ["up", *_YES, *_QUIET, *(["--refresh"] if refresh else [])]
            events = latest = operation.run(words, program, accept=_accept_old_objects)
            while old := still_in_the_way(latest) + on_their_way_out(latest):
                operation.wait(_TERMINATION_POLL, what=", ".join(old))
                latest = operation.run(["up", *_YES, *_QUIET, "--refresh"], program, accept=_accept_old_objects)
                events = [*events, *latest]
            operation.prune()
        return UpResult(summarize(events), outputs(events))

    def preview(
        self,
        program: PulumiFn,
        *,
        deadline: float | None = None,
        cancellation: Cancellation | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
    ) -> ChangeSummary:
        """What `up` would change. Nothing is changed, and the stack is not created.

        Args:
            program: The inline program.
            deadline: Seconds that it may take.
            cancellation: Stops it.
            on_event: Told each event of the engine.
        """
        words = ["preview", *_QUIET]
        if self.exists():
            with self._engine._operation(self.name, deadline, cancellation, on_event) as operation:
                return summarize(operation.run(words, program, accept=_accept_old_objects))
        # The CLI previews existing stacks only: this one exists for the time of the question, in a folder of its own.
        with (
            self._engine._cli.folder() as aside,
            self._engine._operation(
                self.name, deadline, cancellation, on_event, backend=f"file://{aside}"
            ) as operation,
        ):
            operation.init()
            return summarize(operation.run(words, program, accept=_accept_old_objects))

    def refresh(
        self,
        *,
        deadline: float | None = None,
        cancellation: Cancellation | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
    ) -> ChangeSummary:
        """Bring the record to what is really there; the cluster is only read.

        Args:
            deadline: Seconds that it may take.
            cancellation: Stops it.
            on_event: Told each event of the engine.

        Raises:
            PermanentError: There is no such stack (reason `StackNotFound`).
        """
        with self._engine._operation(self.name, deadline, cancellation, on_event) as operation:
            if not operation.recover():
                raise PermanentError(f"there is no stack {self.name}", reason="StackNotFound")
            events = operation.run(["refresh", *_YES, *_QUIET])
            operation.prune()
        return summarize(events)

    def destroy(
        self,
        *,
        deadline: float | None = None,
        cancellation: Cancellation | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
    ) -> ChangeSummary:
        """Delete what the record holds, then the record; the program is not needed.

        A stack that does not exist is a success. After a failure the record is
        kept, with what is left in it.

        Args:
            deadline: Seconds that it may take.
            cancellation: Stops it.
            on_event: Told each event of the engine.
        """
        with self._engine._operation(self.name, deadline, cancellation, on_event) as operation:
            events: list[EngineEvent] = []
            if operation.recover():
                events = operation.run(["destroy", "--remove", *_YES, *_QUIET])
        records = self._engine._parts.records
        if records is not None:
            records.tidy(self.name)
        return summarize(events)

    def cancel(self) -> bool:
        """Stop what this engine is doing on the stack, gracefully first; it is not waited for.

        Returns:
            Whether anything was running.
        """
        return self._engine._cancel(self.name)

    def unlock(self) -> None:
        """Clear the locks of dead holders.

        Raises:
            TransientError: A holder lives, or that cannot be known (reason
                `StackLocked`).
        """
        with self._engine._operation(self.name, None, None, None) as operation:
            operation.clear_dead_locks()

    def forget(self) -> None:
        """Drop the record without touching the cluster: what it held must be found by its labels from then on.

        For a cluster that is gone for good, or a record that nothing can read.

        Raises:
            TransientError: Somebody is changing the stack (reason `StackLocked`).
        """
        records = self._engine._parts.records
        if records is not None:
            self.unlock()
            records.forget(self.name)
        elif self.exists():
            self._engine._ask(["stack", "rm", self.name, "--yes", "--force"])

    def tidy(self) -> None:
        """Remove what the stack left in the backend when it went: backup, history, locks of dead holders.

        A stack that exists is left alone.

        Raises:
            TransientError: Somebody holds its lock (reason `StackLocked`).
        """
        records = self._engine._parts.records
        if records is not None:
            self.unlock()
            records.tidy(self.name)
