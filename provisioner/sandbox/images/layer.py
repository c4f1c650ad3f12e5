"""Layers: the same content always gives the same bytes, and is packed once.

A layer is a tar with sorted entries, one fixed time and one owner. Packing a
Python installation takes seconds, so a packed layer is kept under its digest,
and found again by a key made of what would go into it (names, sizes and times
of change), without reading any of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from provisioner import settings

_DAY = 24 * 3600.0
_KEPT_FOR = 30 * _DAY
EPOCH = 315532800  # 1980-01-01: the oldest time that zip files, and so Python's importers, can hold


def image_cache() -> Path:
    """Where built images and their layers are kept; all of it can be made again."""
    return settings.cache_home() / "images"


@dataclass(frozen=True)
class Entry:
    """One file, folder or link in an image.

    Attributes:
        mode: Permission bits.
        source: For a file: where its content is on this machine.
        content: For a file: its content, when there is no source.
        target: For a symbolic link: where it points.
    """

    mode: int
    source: Path | None = None
    content: bytes | None = None
    target: str = ""

    def signature(self) -> tuple[object, ...]:
        """What identifies the entry without reading a file."""
        if self.source is not None:
            facts = self.source.stat()
            return (self.mode, str(self.source), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        return (self.mode, hashlib.sha256(self.content).hexdigest() if self.content is not None else "", self.target)


@dataclass(frozen=True)
class Layer:
    """A packed layer.

    Attributes:
        digest: SHA-256 of the tar, in hex.
        size: Bytes of the tar.
    """

    digest: str
    size: int


@dataclass
class Tree:
    """The files of a layer, by their absolute path in the image."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def _put(self, path: str, entry: Entry) -> None:
        clean = os.path.normpath("/" + path.lstrip("/"))
        self.entries[clean] = entry
        for parent in Path(clean).parents:
            self.entries.setdefault(str(parent), Entry(0o755))

    def folder(self, path: str, mode: int = 0o755) -> None:
        """Add a folder; those above any entry are added by themselves."""
        self._put(path, Entry(mode))

    def file(self, path: str, source: Path) -> None:
        """Add a file of this machine; readable by all, executable if it is here."""
        executable = source.stat().st_mode & stat.S_IXUSR
        self._put(path, Entry(0o755 if executable else 0o644, source=source))

    def text(self, path: str, content: str, mode: int = 0o644) -> None:
        """Add a file with this content."""
        self._put(path, Entry(mode, content=content.encode()))

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._put(path, Entry(0o777, target=target))

    def key(self) -> str:
        """What would go into the layer, as a hash."""
        facts = [(path, *entry.signature()) for path, entry in sorted(self.entries.items())]
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def touch(path: Path) -> None:
    """Note that a file of the cache is still in use."""
    if time.time() - path.stat().st_mtime > _DAY:
        os.utime(path)


def forget(folder: Path) -> None:
    """Remove packed layers that nothing has used for a month.

    Args:
        folder: The cache.
    """
    for kind in ("blobs", "keys"):
        for path in (folder / kind).glob("*"):
            if time.time() - path.stat().st_mtime > _KEPT_FOR:
                path.unlink(missing_ok=True)


class _Hashing(io.RawIOBase):
    """A file that is hashed while it is written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.digest.update(data)
        self.size += len(data)
        return self._stream.write(data)


def _pack(tree: Tree, stream: _Hashing) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path, entry in sorted(tree.entries.items()):
            if path == "/":
                continue
            info = tarfile.TarInfo(path.lstrip("/"))
            info.mode, info.mtime = entry.mode, EPOCH
            if entry.target:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
                tar.addfile(info)
            elif entry.source is not None:
                with entry.source.open("rb") as content:
                    info.size = os.fstat(content.fileno()).st_size
                    tar.addfile(info, content)
            elif entry.content is not None:
                info.size = len(entry.content)
                tar.addfile(info, io.BytesIO(entry.content))
            else:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)


class Store:
    """Packed layers on disk.

    Args:
        folder: Where they are kept; made when it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def blob(self, digest: str) -> Path:
        """The file of a packed layer."""
        return self._folder / "blobs" / digest

    def pack(self, tree: Tree) -> Layer:
        """Pack a layer, or find it packed already.

        Args:
            tree: Its files.

        Returns:
            The layer; its tar is at `blob(layer.digest)`.
        """
        known = self._folder / "keys" / tree.key()
        if known.exists():
            layer = Layer(**json.loads(known.read_text()))
            blob = self.blob(layer.digest)
            if blob.exists() and blob.stat().st_size == layer.size:
                touch(known)
                touch(blob)
                return layer
        for name in ("blobs", "keys"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".packing-")
        try:
            with os.fdopen(handle, "wb") as file:
                stream = _Hashing(file)
                _pack(tree, stream)
            layer = Layer(stream.digest.hexdigest(), stream.size)
            Path(name).replace(self.blob(layer.digest))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        fresh = known.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"digest": layer.digest, "size": layer.size}))
        fresh.replace(known)
        return layer
