"""Changes to a stack's record that the engine offers no safe way for.

They are made under the engine's own lock, taken by its protocol (look, write,
look again), so no operation of any replica ever sees half of one or has its
result overwritten.
"""

from __future__ import annotations

import getpass
import gzip
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from provisioner.engine.checkpoint import Checkpoint, CheckpointError, Component, first, parse
from provisioner.engine.state import STACKS, Lock, StateReader, backup_folder, history_folder, lock_folder
from provisioner.engine.store import LAYOUT, Store
from provisioner.errors import TransientError

# What is added to the name of a checkpoint that is kept.
_KEPT = ".last"


def _checkpoint_paths(name: str) -> tuple[str, str]:
    return f"{STACKS}/{name}.json", f"{STACKS}/{name}.json.gz"


def locked(stack: str, lock: Lock, place: str) -> TransientError:
    """The error for a stack that somebody else is changing.

    Args:
        stack: Name of the stack.
        lock: Theirs.
        place: The lock's full name.
    """
    return TransientError(
        f"stack {stack} is locked by {lock}",
        reason="StackLocked",
        hint=f"wait for it to end; if that machine is gone for good, delete {place}",
    )


class Records:
    """Changes records in a self-managed backend; safe for several threads.

    Args:
        store: The backend's objects.
        state: Reads them.
    """

    def __init__(self, store: Store, state: StateReader) -> None:
        self._store = store
        self._state = state

    def place(self, path: str) -> str:
        """The full name of an object, for messages."""
        return self._store.place(path)

    def unlock(self, lock: Lock) -> None:
        """Take a lock away; the path is that very lock's alone, so a newer one is never hit.

        Args:
            lock: Of a holder that is dead.
        """
        self._store.delete(lock.path)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a stack's lock.

        Args:
            name: Name of the stack.

        Raises:
            TransientError: Somebody else holds it (reason `StackLocked`).
        """
        self._refuse(name, own="")
        path = f"{lock_folder(name)}/{uuid.uuid4()}.json"
        content = {
            "pid": os.getpid(),
            "username": getpass.getuser(),
            "hostname": socket.gethostname(),
            "timestamp": datetime.now(UTC).isoformat(),
        }
        self._store.write(path, json.dumps(content).encode())
        try:
            self._refuse(name, own=path)
            yield
        finally:
            self._store.delete(path)

    def _refuse(self, name: str, *, own: str) -> None:
        for lock in self._state.locks(name):
            if lock.path != own:
                raise locked(name, lock, self._store.place(lock.path))

    def laid_out(self) -> bool:
        """Whether the engine has used the backend: it alone says of which layout a new one is to be."""
        return self._store.exists(LAYOUT)

    @contextmanager
    def made(self, name: str, component: Component | None = None) -> Iterator[bool]:
        """Hold the lock of a stack, its record made as `stack init` does, without a process.

        The engine adds its way to encrypt at the first update.

        Args:
            name: Name of the stack, in a backend that is laid out.
            component: What is recorded in it; None for an empty stack.

        Yields:
            Whether the record was made here: not where there is one already.

        Raises:
            TransientError: Somebody else is changing the stack (reason `StackLocked`).
        """
        with self.lock(name):
            anew = not self._state.exists(name)
            if anew:
                self._store.write(_checkpoint_paths(name)[0], first(name, component))
            yield anew

    def edit(self, name: str, change: Callable[[Checkpoint], bytes | None]) -> None:
        """Change a checkpoint under the lock.

        Args:
            name: Name of the stack.
            change: Gives the new bytes, or None to leave it as it is.
        """
        with self.lock(name):
            checkpoint = self._state.checkpoint(name)
            content = change(checkpoint) if checkpoint is not None else None
            if content is None:
                return
            plain, packed = _checkpoint_paths(name)
            if self._store.read(plain) is not None:
                self._store.write(plain, content)
            else:
                self._store.write(packed, gzip.compress(content))

    def require_space(self) -> None:
        """Refuse to go on while the disk is nearly full.

        Raises:
            TransientError: It is (reason `DiskFull`).
        """
        self._store.require_space()

    def keep(self, name: str) -> None:
        """Keep a good checkpoint as an operation found it, beside the engine's own backup.

        Args:
            name: Name of the stack; its checkpoint can be read.
        """
        for path in _checkpoint_paths(name):
            self._store.keep(path, _KEPT)

    def restore(self, name: str) -> bool:
        """Put a backup in the place of a checkpoint that cannot be read.

        The engine's backup is one write older; should it be damaged too, there
        is the checkpoint as the last operation found it. What was recorded
        since is found again as a pending operation, by a refresh, or by labels.

        Args:
            name: Name of the stack.

        Returns:
            False when no backup can be read.
        """
        with self.lock(name):
            for path in _checkpoint_paths(name):
                if not self._store.exists(path):
                    continue
                for suffix in (".bak", _KEPT):
                    content = self._store.read(path + suffix)
                    if content is not None and _readable(name, content):
                        self._store.write(path, content)
                        return True
        return False

    def forget(self, name: str) -> None:
        """Remove all that the backend holds of a stack.

        Args:
            name: Name of the stack.

        Raises:
            TransientError: Somebody is changing it (reason `StackLocked`).
        """
        with self.lock(name):
            for path in _checkpoint_paths(name):
                self._store.delete(path)
            self._remove_remains(name)
        self._remove_empty_folders(name)

    def tidy(self, name: str) -> None:
        """Remove what a destroyed stack leaves: backup, history, unfinished files, empty folders.

        Args:
            name: Name of the stack. One that exists again, or that somebody is
                making just now, is left alone.
        """
        if self._state.exists(name) or not self._remains(name):
            self._remove_empty_folders(name)
            return
        try:
            with self.lock(name):
                if not self._state.exists(name):
                    self._remove_remains(name)
        except TransientError as error:
            if error.reason != "StackLocked":
                raise
        self._remove_empty_folders(name)

    def _remains(self, name: str) -> list[str]:
        found = self._store.beside(f"{STACKS}/{name}.json")
        for folder in (history_folder(name), backup_folder(name)):
            found += [f"{folder}/{entry.name}" for entry in self._store.entries(folder)]
        return found

    def _remove_remains(self, name: str) -> None:
        for path in self._remains(name):
            self._store.delete(path)

    def _remove_empty_folders(self, name: str) -> None:
        for folder in (history_folder(name), backup_folder(name), lock_folder(name)):
            self._store.delete_empty_folder(folder)

    def prune_history(self, name: str, keep: int) -> None:
        """Delete the oldest entries of a stack's history; each operation adds one or two.

        Args:
            name: Name of the stack.
            keep: Number of operations that stay.
        """
        folder = history_folder(name)
        entries = [entry.name for entry in self._store.entries(folder) if entry.name.startswith(f"{name}-")]
        # STACK-TIME.KIND.json, with the time in nanoseconds: the order of the names is that of time.
        kept = sorted({file.partition(".")[0] for file in entries})[-keep:]
        for file in entries:
            if file.partition(".")[0] not in kept:
                self._store.delete(f"{folder}/{file}")


def _readable(name: str, content: bytes) -> bool:
    try:
        parse(name, content)
    except CheckpointError:
        return False
    return True
