"""The objects of a state backend, read and written without the engine.

The engine keeps its state as plain objects in a folder or a bucket. Through
fsspec they are reached directly, so that a poll, a sweep or a look at a lock
costs no process. Each client library has errors of its own; here they become
ours, at this one place.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import fsspec

from provisioner.engine.environment import file_backend
from provisioner.errors import PermanentError, ProvisionerError, TransientError


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


@dataclass(frozen=True)
class Location:
    """How fsspec reaches a backend.

    Attributes:
        protocol: fsspec's name of the file system.
        root: Folder or bucket with prefix, without a slash at its end.
        options: For the file system's constructor.
    """

    protocol: str
    root: str
    options: dict[str, Any]


def locate(url: str) -> Location | None:
    """How a backend URL is reached directly.

    The queries are those of Go CDK's URL openers, which the engine uses.

    Args:
        url: As in the settings.

    Returns:
        None for a backend that only the CLI can read (Pulumi Cloud, a database).
    """
    folder = file_backend(url)
    if folder is not None:
        return Location("file", str(folder), {})
    parts = urlsplit(url)
    root = f"{parts.netloc}{parts.path}".rstrip("/")
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "s3":
        return Location("s3", root, _s3_options(query))
    if parts.scheme == "gs":
        return Location("gs", root, _gs_options())
    if parts.scheme == "azblob":
        return Location("abfs", root, _azure_options(query))
    return None


def _true(query: dict[str, str], *names: str) -> bool:
    return any(query.get(name, "").lower() in {"1", "t", "true"} for name in names)


def _s3_options(query: dict[str, str]) -> dict[str, Any]:
    client: dict[str, Any] = {}
    if "region" in query:
        client["region_name"] = query["region"]
    if endpoint := query.get("endpoint"):
        scheme = "http" if _true(query, "disableSSL", "disable_https") else "https"
        client["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    options: dict[str, Any] = {"client_kwargs": client}
    if "profile" in query:
        options["profile"] = query["profile"]
    if _true(query, "s3ForcePathStyle", "use_path_style", "hostname_immutable"):
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options


def _gs_options() -> dict[str, Any]:
    # The engine takes the key itself from GOOGLE_CREDENTIALS; else both find the default credentials.
    key = os.environ.get("GOOGLE_CREDENTIALS", "")
    return {"token": json.loads(key)} if key.lstrip().startswith("{") else {}


def _azure_options(query: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "account_name": query.get("storage_account") or os.environ.get("AZURE_STORAGE_ACCOUNT"),
        "account_key": os.environ.get("AZURE_STORAGE_KEY"),
        "sas_token": os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
        "anon": False,
    }
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def _translated(place: str) -> Iterator[None]:
    try:
        yield
    except (ProvisionerError, FileNotFoundError):
        raise
    except PermissionError as error:
        raise PermanentError(
            f"state backend refuses access to {place}: {error.strerror or error}",
            reason="StatePermissionDenied",
            hint="give the server's account the right to read and write there",
        ) from error
    except Exception as error:  # each storage client has errors of its own
        raise TransientError(
            f"state backend cannot be reached for {place}: {error}",
            reason="StateUnavailable",
            hint="check PROVISIONER_BACKEND and the storage behind it",
        ) from error


class Store:
    """Objects below the root of one backend; paths are relative, with slashes. Safe for several threads.

    Args:
        location: Where.
    """

    def __init__(self, location: Location) -> None:
        self._root = location.root
        self._local = location.protocol == "file"
        with _translated(location.root):
            # Listings that were kept would hide what another process wrote.
            listings = {} if self._local else {"use_listings_cache": False}
            self._files = fsspec.filesystem(location.protocol, **location.options, **listings)

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
            return bool(self._files.exists(self.place(path)))

    def read(self, path: str) -> bytes | None:
        """An object's bytes; None if it does not exist.

        Args:
            path: Relative path.
        """
        with _translated(self.place(path)):
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
