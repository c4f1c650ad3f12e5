"""What the backend holds: stacks, checkpoints and locks, read without a process.

The layout is the engine's own for a self-managed ("DIY") backend in project
mode: `.pulumi/stacks/PROJECT/STACK.json` with a `.bak` beside it,
`.pulumi/locks/organization/PROJECT/STACK/UUID.json`, and one folder of history
per stack. A backend that is no such folder (Pulumi Cloud, a database) is asked
through the CLI, at a process per question; it keeps no locks that we could see.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from provisioner.engine.checkpoint import Checkpoint, CheckpointError, parse, parse_time
from provisioner.engine.environment import PROJECT
from provisioner.engine.store import Entry, Store
from provisioner.errors import PermanentError

STACKS = f".pulumi/stacks/{PROJECT}"
# The engine may have been told elsewhere to compress; each stack has one of these.
_CHECKPOINT_FILE = re.compile(r"(?P<stack>[A-Za-z0-9_.-]+?)\.json(?:\.gz)?")
_UNKNOWN_TIME = "0001-01-01T00:00:00+00:00"


_LOCKS = f".pulumi/locks/organization/{PROJECT}"


def lock_folder(stack: str) -> str:
    """Where a stack's locks are."""
    return f"{_LOCKS}/{stack}"


def history_folder(stack: str) -> str:
    """Where a stack's history is."""
    return f".pulumi/history/{PROJECT}/{stack}"


def backup_folder(stack: str) -> str:
    """Where an engine that was told to copies each checkpoint."""
    return f".pulumi/backups/{PROJECT}/{stack}"


@dataclass(frozen=True)
class Lock:
    """Somebody's claim to be the only one who changes a stack.

    Attributes:
        pid: Of the CLI process.
        user: Whose process it is.
        host: Name of its machine.
        time: When it was taken.
        path: The object's path in the backend.
    """

    pid: int
    user: str
    host: str
    time: datetime
    path: str

    @property
    def unfinished(self) -> bool:
        """Whether its writer has not come to name itself."""
        return self.pid == 0 and self.path.endswith(".tmp")

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user}@{self.host} since {self.time.isoformat(timespec='seconds')}"


@dataclass(frozen=True)
class StackEntry:
    """One stack of a listing.

    Attributes:
        name: Its name.
        modified: When its checkpoint was written last, if the backend says so.
    """

    name: str
    modified: datetime | None


class StateReader:
    """Reads a backend; safe for several threads.

    Args:
        store: The backend's objects; None when only the CLI can read them.
        ask: Runs the CLI with these arguments and gives its output.
    """

    def __init__(self, store: Store | None, ask: Callable[[Sequence[str]], str]) -> None:
        self._store = store
        self._ask = ask

    @property
    def direct(self) -> bool:
        """Whether a question costs no process."""
        return self._store is not None

    def stacks(self) -> Iterator[str]:
        """The names of all stacks of this project."""
        return (entry.name for entry in self.entries())

    def entries(self) -> Iterator[StackEntry]:
        """All stacks with the time of their last change, from one listing; no checkpoint is read."""
        if self._store is None:
            yield from self._listed_by_cli()
            return
        for entry in self._store.entries(STACKS):
            match = _CHECKPOINT_FILE.fullmatch(entry.name)
            if match is not None:
                yield StackEntry(match["stack"], entry.modified)

    def _listed_by_cli(self) -> Iterator[StackEntry]:
        for item in json.loads(self._ask(["stack", "ls", "--json", "--project", PROJECT])):
            updated = item.get("lastUpdate")
            # A name may come with its organization and project.
            yield StackEntry(item["name"].rsplit("/", 1)[-1], parse_time(updated) if updated else None)

    def exists(self, name: str) -> bool:
        """Whether there is a stack of that name.

        Args:
            name: Name of the stack.
        """
        if self._store is None:
            return name in set(self.stacks())
        return self._read(name) is not None

    def checkpoint(self, name: str) -> Checkpoint | None:
        """A stack's checkpoint; None when there is no such stack.

        Args:
            name: Name of the stack.

        Raises:
            PermanentError: It cannot be read (reason `StateUnreadable`).
            TransientError: The backend cannot be reached.
        """
        if self._store is None:
            if not self.exists(name):
                return None
            return parse(name, self._ask(["stack", "export", "--stack", name]).encode())
        content = self._read(name)
        if content is None:
            return None
        try:
            return parse(name, content)
        except CheckpointError as error:
            raise PermanentError(
                f"checkpoint of stack {name} cannot be read: {error}",
                reason="StateUnreadable",
                hint=f"restore {self._store.place(STACKS)}/{name}.json from a backup, "
                "or forget the stack and let its objects be found by their labels",
            ) from error

    def history(self, name: str) -> Iterator[Checkpoint]:
        """The checkpoints that earlier operations left, the newest first; each is read when it is asked for.

        Args:
            name: Name of the stack.
        """
        if self._store is None:
            for item in json.loads(self._ask(["stack", "history", "--json", "--stack", name])):
                exported = self._ask(["stack", "export", "--stack", name, "--version", str(item["version"])])
                yield parse(name, exported.encode())
            return
        folder = history_folder(name)
        # The names hold the time in nanoseconds: their order is that of time.
        for entry in sorted(self._store.entries(folder), key=lambda item: item.name, reverse=True):
            content = self._store.read(f"{folder}/{entry.name}") if ".checkpoint.json" in entry.name else None
            if content is None:
                continue
            try:
                yield parse(name, content)
            except CheckpointError:
                continue  # cut short by a crash; those before it are whole

    def _read(self, name: str) -> bytes | None:
        assert self._store is not None  # noqa: S101 - the callers have looked
        plain = self._store.read(f"{STACKS}/{name}.json")
        return plain if plain is not None else self._store.read(f"{STACKS}/{name}.json.gz")

    def locked(self) -> list[str]:
        """The stacks that somebody holds a lock of, or has lately; none where the backend keeps them to itself."""
        return self._store.folders(_LOCKS) if self._store is not None else []

    def locks(self, name: str) -> list[Lock]:
        """The locks on a stack; none where the backend keeps them to itself.

        Args:
            name: Name of the stack.
        """
        if self._store is None:
            return []
        found = []
        for entry in self._store.entries(lock_folder(name)):
            path = f"{lock_folder(name)}/{entry.name}"
            # To the engine every file there is a lock, also one that its writer was killed before it could rename.
            content = self._store.read(path) if not entry.name.endswith(".attrs") else None
            if content is not None:
                found.append(_lock(path, content, entry))
        return found


def _lock(path: str, content: bytes, entry: Entry) -> Lock:
    fallback = entry.modified or datetime.fromisoformat(_UNKNOWN_TIME)
    try:
        item = json.loads(content)
        return Lock(int(item["pid"]), str(item["username"]), str(item["hostname"]), parse_time(item["timestamp"]), path)
    except (ValueError, KeyError, TypeError):
        # Cut short by a full disk. Nobody can be named, so nobody is judged dead.
        return Lock(0, "unknown", "unknown", fallback, path)
