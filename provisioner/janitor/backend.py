"""The first listing: what the backend has of stacks, locks and remains, without a process and mostly without reading.

A listing of the folder of checkpoints tells names and times; locks are few, so
only the stacks that have any are looked at. A checkpoint is read when a
decision depends on it.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

import structlog

from provisioner.engine import Engine, Lock
from provisioner.engine.location import locate
from provisioner.engine.operation import HolderAlive
from provisioner.engine.origin import backend_id
from provisioner.engine.process import process_facts
from provisioner.engine.recovery import Holder, judge
from provisioner.engine.state import STACKS, backup_folder, history_folder, lock_folder
from provisioner.engine.store import Store
from provisioner.errors import ProvisionerError
from provisioner.janitor import metrics
from provisioner.janitor.facts import CheckpointFacts, LockFacts, StackFacts
from provisioner.janitor.recorded import facts_of
from provisioner.settings import Settings

_log = structlog.get_logger(__name__)


def _parent(folder_of: Callable[[str], str]) -> str:
    return folder_of("any").rpartition("/")[0]


@dataclass(frozen=True)
class Listing:
    """What one look at the backend shows.

    Attributes:
        stacks: By name.
        remains: Stacks that are gone but left something, with the time of
            their last change if it is known.
        surplus: Stacks with more backups than are kept.
    """

    stacks: Mapping[str, StackFacts]
    remains: Mapping[str, datetime | None] = field(default_factory=dict)
    surplus: frozenset[str] = frozenset()


class Backend:
    """Reads the backend for the janitor; safe for several threads.

    Args:
        engine: Of this backend.
        settings: Which backend.
        holder_alive: Says of a lock's holder on another machine whether it lives.
        backups_kept: Backups of a checkpoint that stay.

    Attributes:
        checkpoints_read: How many checkpoints were read.
    """

    def __init__(self, engine: Engine, settings: Settings, holder_alive: HolderAlive, *, backups_kept: int = 3) -> None:
        location = locate(settings.backend)
        self._state = engine.state
        self._settings = settings
        self._store = Store(location) if location is not None else None
        self._holder_alive = holder_alive
        self._backups_kept = backups_kept
        self._lock = threading.Lock()
        self.checkpoints_read = 0

    def id(self) -> str:
        """The id that objects recorded here carry."""
        return backend_id(self._settings)

    def listing(self) -> Listing:
        """All stacks with their locks, and what stacks that are gone left behind; no checkpoint is read."""
        if self._store is None:
            return Listing({entry.name: StackFacts(entry.name, entry.modified) for entry in self._state.entries()})
        stacks: dict[str, StackFacts] = {}
        beside: dict[str, datetime | None] = {}
        for entry in self._store.entries(STACKS):
            name, dot, suffix = entry.name.partition(".json")
            if dot and suffix in ("", ".gz"):
                stacks[name] = StackFacts(name, entry.modified)
            elif dot:
                beside[name] = max(filter(None, (beside.get(name), entry.modified)), default=None)
        locked, backups = self._store.folders(_parent(lock_folder)), self._store.folders(_parent(backup_folder))
        for name in locked:
            if name in stacks:
                stacks[name] = StackFacts(name, stacks[name].modified, self._locks(name))
        remains = {name: modified for name, modified in beside.items() if name not in stacks}
        for name in chain(self._store.folders(_parent(history_folder)), locked, backups):
            if name not in stacks:
                remains.setdefault(name, self._last_change(name))
        surplus = {name for name in backups if name in stacks and len(self._backups(name)) > self._backups_kept}
        return Listing(stacks, remains, frozenset(surplus))

    def stack(self, name: str, modified: datetime | None) -> StackFacts | None:
        """One stack as it is now, its checkpoint read; None when it is gone.

        Args:
            name: Name of the stack.
            modified: When it was changed last, as a listing said.
        """
        checkpoint, written = self._checkpoint(name)
        if checkpoint is None:
            return None
        times = [time for time in (modified, written) if time is not None]
        return StackFacts(name, max(times, default=None), self._locks(name), checkpoint)

    def checkpoint(self, name: str) -> CheckpointFacts | None:
        """What is in a stack's checkpoint; None when the stack is gone.

        Args:
            name: Name of the stack.
        """
        return self._checkpoint(name)[0]

    def _checkpoint(self, name: str) -> tuple[CheckpointFacts | None, datetime | None]:
        metrics.CHECKPOINTS_READ.inc()
        with self._lock:
            self.checkpoints_read += 1
        try:
            checkpoint = self._state.checkpoint(name)
            if checkpoint is None:
                return None, None
            failed = bool(checkpoint.resources) and self._destroy_failed(name)
            return facts_of(checkpoint, destroy_failed=failed), checkpoint.modified
        except ProvisionerError as error:
            _log.warning("a checkpoint cannot be read", stack_name=name, error=error.message)
            return CheckpointFacts(unreadable=f"{error.message}; {error.hint}".rstrip("; ")), None

    def _destroy_failed(self, name: str) -> bool:
        """Whether the last operation in the stack's history is a destroy that did not succeed."""
        if self._store is None:
            return False
        folder = history_folder(name)
        # The names hold the time in nanoseconds: their order is that of time.
        entries = [item.name for item in self._store.entries(folder) if item.name.endswith(".history.json")]
        content = self._store.read(f"{folder}/{entries[-1]}") if entries else None
        try:
            last = json.loads(content) if content else {}
        except ValueError:
            return False
        return last.get("kind") == "destroy" and last.get("result") != "succeeded"

    def _locks(self, name: str) -> tuple[LockFacts, ...]:
        return tuple(
            LockFacts(self._holder(name, lock), str(lock), self._store.place(lock.path) if self._store else lock.path)
            for lock in self._state.locks(name)
        )

    def _holder(self, name: str, lock: Lock) -> Holder:
        holder = judge(lock, stack=name, host=socket.gethostname(), facts=process_facts(lock.pid))
        if holder is Holder.UNKNOWN:
            alive = self._holder_alive(lock)
            return Holder.UNKNOWN if alive is None else Holder.ALIVE if alive else Holder.DEAD
        return holder

    def _last_change(self, name: str) -> datetime | None:
        assert self._store is not None  # noqa: S101 - the caller has looked
        folders = (history_folder(name), lock_folder(name), backup_folder(name))
        times = [entry.modified for folder in folders for entry in self._store.entries(folder)]
        return max((time for time in times if time is not None), default=None)

    def _backups(self, name: str) -> list[str]:
        assert self._store is not None  # noqa: S101 - the callers have looked
        folder = backup_folder(name)
        return [f"{folder}/{entry.name}" for entry in self._store.entries(folder)]

    def prune_backups(self, name: str) -> None:
        """Delete the oldest backups of a stack's checkpoint.

        Args:
            name: Name of the stack.
        """
        if self._store is None:
            return
        backups = self._backups(name)
        for path in backups[: max(0, len(backups) - self._backups_kept)]:
            self._store.delete(path)
