"""The objects of a state backend, read and written without the engine.

The engine keeps its state as plain objects in a folder or a bucket. Through
fsspec they are reached directly, so that a poll, a sweep or a look at a lock
costs no process. Each client library has errors of its own; here they become
ours, at this one place.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsspec import get_filesystem_class
from fsspec.registry import known_implementations

from provisioner.engine.location import Location
from provisioner.errors import PermanentError, ProvisionerError, TransientError

# Written by the engine at the first use of a backend, and never taken away.
LAYOUT = ".pulumi/meta.yaml"
# Bytes that must be free: many times the checkpoints of all workers.
_LEAST_SPACE = 32 * 1024 * 1024


@dataclass(frozen=True)
class Entry:
    """One object of a listing.

    Attributes:
        name: Its name in the folder.
        size: Bytes.
        modified: When it was written last; None where the backend does not say.
    """

    name: str
    size: int
    modified: datetime | None


@contextmanager
def _translated(place: str) -> Iterator[None]:
    try:
        yield
    except (ProvisionerError, FileNotFoundError):
        raise
    except OSError as error:
        raise _storage_error(place, error) from error
    except Exception as error:  # each storage client has errors of its own
        raise TransientError(
            f"state backend cannot be reached for {place}: {error}",
            reason="StateUnavailable",
            hint="check PROVISIONER_BACKEND and the storage behind it",
        ) from error


def _storage_error(place: str, error: OSError) -> ProvisionerError:
    what = error.strerror or str(error)
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return PermanentError(
            f"state backend refuses access to {place}: {what}",
            reason="StatePermissionDenied",
            hint="give the server's account the right to read and write there",
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return disk_full(place)
    return TransientError(
        f"state backend cannot be reached for {place}: {what}",
        reason="StateUnavailable",
        hint="check PROVISIONER_BACKEND and the storage behind it",
    )


def disk_full(place: str) -> TransientError:
    """The error for a state folder on a full disk.

    Args:
        place: What could not be written.
    """
    return TransientError(
        f"no space is left for the state at {place}",
        reason="DiskFull",
        hint="make room on the disk of the state folder; nothing is changed until there is",
    )


def folder_lost(root: str) -> TransientError:
    """The error for a state folder that was there and is not: what it holds is not gone, it cannot be seen.

    Args:
        root: The folder.
    """
    return TransientError(
        f"state folder {root} is not there any more, or is another one",
        reason="StateUnavailable",
        hint="mount it again; if it is to begin empty, start the server again",
    )


def _client(protocol: str) -> Any:
    """Fsspec's own client for a protocol: a library in this process may have put another in its place, as Flyte 2 does.

    Args:
        protocol: Such as `s3`.

    Raises:
        ImportError: Its package is not installed.
    """
    own = known_implementations.get(protocol)
    if own is None:
        return get_filesystem_class(protocol)
    module, _, name = own["class"].rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ImportError(own.get("err") or str(error)) from error


class Store:
    """Objects below the root of one backend; paths are relative, with slashes. Safe for several threads.

    Args:
        location: Where.
    """

    def __init__(self, location: Location) -> None:
        self._root = location.root
        self._local = location.protocol == "file"
        self._seen: frozenset[str] = frozenset()
        with _translated(location.root):
            # Listings that were kept would hide what another process wrote.
            listings = {} if self._local else {"use_listings_cache": False}
            self._files = _client(location.protocol)(**location.options, **listings)

    def _require_folder(self) -> None:
        """Tell "there is no such object" from "the folder that it was in is away".

        A mount point is still there without its volume, and the engine makes
        anew what it misses. So a folder that has lost its mark is another one.

        Raises:
            TransientError: The folder was there before, and is not.
        """
        if not self._local:
            return
        there = frozenset(place for place in (self._root, self.place(LAYOUT)) if Path(place).exists())
        if not self._seen <= there:
            raise folder_lost(self._root)
        self._seen = there

    def require_space(self) -> None:
        """Refuse to go on while the disk of a state folder is nearly full.

        The engine renames even a checkpoint that it could not write in full
        over the good one, and the next write copies that over the backup.

        Raises:
            TransientError: There is too little space (reason `DiskFull`).
        """
        if self._local and Path(self._root).is_dir() and shutil.disk_usage(self._root).free < _LEAST_SPACE:
            raise disk_full(self._root)

    def keep(self, path: str, suffix: str) -> None:
        """Keep a folder's object as it is now under another name; it takes no space, and costs nothing in a bucket.

        A bucket's writes are whole or not there, so nothing is kept there.

        Args:
            path: Relative path of the object.
            suffix: What is added to its name.
        """
        if not self._local or not Path(self.place(path)).exists():
            return
        with _translated(self.place(path)), suppress(FileNotFoundError):
            kept = Path(self.place(path) + suffix)
            # A second name of the same content: writers replace the first name, never the content.
            fresh = kept.with_name(f"{kept.name}.{os.getpid()}-{threading.get_ident()}.tmp")
            fresh.unlink(missing_ok=True)
            fresh.hardlink_to(self.place(path))
            fresh.replace(kept)

    def place(self, path: str) -> str:
        """The full name of an object, for messages."""
        return f"{self._root}/{path}"

    def entries(self, folder: str) -> list[Entry]:
        """The objects of a folder, in the order of their names; none if it does not exist.

        Args:
            folder: Relative path.
        """
        with _translated(self.place(folder)):
            if self._local:
                self._require_folder()
                return self._list_local(Path(self.place(folder)))
            try:
                found = self._files.ls(self.place(folder), detail=True)
            except FileNotFoundError:
                return []
            entries = [
                Entry(item["name"].rsplit("/", 1)[-1], int(item.get("size") or 0), _modified(item))
                for item in found
                if item["type"] == "file"
            ]
            return sorted(entries, key=lambda entry: entry.name)

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, in order; none if it does not exist.

        Args:
            folder: Relative path.
        """
        with _translated(self.place(folder)):
            self._require_folder()
            try:
                if self._local:
                    with os.scandir(self.place(folder)) as inside:
                        return sorted(item.name for item in inside if item.is_dir())
                found = self._files.ls(self.place(folder), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return sorted(item["name"].rstrip("/").rsplit("/", 1)[-1] for item in found if item["type"] == "directory")

    @staticmethod
    def _list_local(folder: Path) -> list[Entry]:
        # fsspec asks three more questions per file: 10,000 stacks would take seconds.
        entries = []
        try:
            with os.scandir(folder) as found:
                for item in found:
                    with suppress(FileNotFoundError):  # ended between the listing and this look
                        facts = item.stat()
                        if item.is_file():
                            modified = datetime.fromtimestamp(facts.st_mtime, UTC)
                            entries.append(Entry(item.name, facts.st_size, modified))
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def beside(self, path: str) -> list[str]:
        """The paths that begin with that of an object and a dot: what its writers keep or left beside it.

        Args:
            path: Relative path.
        """
        folder, _, name = path.rpartition("/")
        if self._local:
            # Not by a listing with all facts: there may be thousands of other objects.
            with _translated(self.place(folder)):
                try:
                    found = os.listdir(self.place(folder))  # noqa: PTH208 - names are enough
                    names = [item for item in found if item.startswith(f"{name}.")]
                except FileNotFoundError:
                    return []
        else:
            # A bucket's writes are whole or not there, so only the known ones can be.
            names = [f"{name}.{suffix}" for suffix in ("bak", "pulumi-tags")]
            names = [item for item in names if self.exists(f"{folder}/{item}")]
        return [f"{folder}/{item}" for item in sorted(names)]

    def exists(self, path: str) -> bool:
        """Whether there is such an object.

        Args:
            path: Relative path.
        """
        with _translated(self.place(path)):
            self._require_folder()
            return bool(self._files.exists(self.place(path)))

    def read(self, path: str) -> bytes | None:
        """An object's bytes; None if it does not exist.

        Args:
            path: Relative path.
        """
        with _translated(self.place(path)):
            self._require_folder()
            try:
                return bytes(self._files.cat_file(self.place(path)))
            except FileNotFoundError:
                return None

    def write(self, path: str, content: bytes) -> None:
        """Write an object as a whole: a reader sees the old one or the new one.

        Args:
            path: Relative path.
            content: Its bytes.
        """
        with _translated(self.place(path)):
            if not self._local:
                self._files.pipe_file(self.place(path), content)
                return
            self._require_folder()
            target = Path(self.place(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.", suffix=".tmp")
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)

    def delete(self, path: str) -> None:
        """Delete an object; one that does not exist is no error.

        Args:
            path: Relative path.
        """
        with _translated(self.place(path)), suppress(FileNotFoundError):
            self._files.rm_file(self.place(path))

    def delete_empty_folder(self, folder: str) -> None:
        """Delete a folder that holds nothing; in a bucket there is no such thing.

        Args:
            folder: Relative path.
        """
        if self._local:
            # Not empty: somebody has just begun to use it.
            with suppress(OSError):
                Path(self.place(folder)).rmdir()


def _modified(item: dict[str, Any]) -> datetime | None:
    # fsspec has no common name for it: s3, abfs and gcs say it each in their own way.
    value = item.get("LastModified") or item.get("last_modified") or item.get("mtime") or item.get("updated")
    if isinstance(value, str):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
        return None
    return value if isinstance(value, datetime) else None
