"""What was installed, and whether it still is: one small file per binary.

A record is written last, after the files it speaks of were renamed into
place, so a kill at any moment leaves either a complete record or a binary
that counts as not installed. Size and modification time make the everyday
question cheap; the checksum answers it for certain.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from provisioner import settings
from provisioner.errors import PermanentError
from provisioner.toolchain.pins import Pin

Source = Literal["path", "cache", "debian"]


class File(BaseModel):
    """One file as it was when it was installed.

    Attributes:
        path: Where it is: below the cache folder, or absolute for a file that
            the system owns. A cache can so be moved or copied whole.
        size: Bytes.
        modified: Modification time in nanoseconds since the epoch.
        digest: SHA-256 in hex; "" for a file that the system owns.
        executable: Whether it is meant to be run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    size: int
    modified: int
    digest: str
    executable: bool

    @property
    def place(self) -> Path:
        """Its absolute path."""
        return settings.cache_home() / self.path


class Record(BaseModel):
    """What is known of one binary.

    Attributes:
        name: The binary's name.
        version: The version it told when it was recorded.
        source: Who owns it: found on PATH, in our cache, a Debian package.
        origin: How it came there, in words.
        files: The binary, then what belongs to it.
        needs: Files elsewhere that it cannot run without.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    source: Source
    origin: str
    files: tuple[File, ...]
    needs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What stands on the disk now.

    Attributes:
        size: Bytes; None when there is no such file.
        modified: Modification time in nanoseconds since the epoch.
        executable: Whether we may run it.
        digest: SHA-256 in hex, or None when it was not computed.
    """

    size: int | None
    modified: int = 0
    executable: bool = False
    digest: str | None = None


def damage(file: File, facts: Facts) -> str:
    """How a file differs from its record; "" when it does not.

    Args:
        file: The file as it was recorded.
        facts: The file as it is. Without a digest, a changed modification
            time counts as a difference, since the content is not known.
    """
    if facts.size is None:
        return f"{file.path.name} is gone"
    if facts.size < file.size:
        return f"{file.path.name} is truncated: {facts.size} of {file.size} bytes"
    if facts.size > file.size:
        return f"{file.path.name} has grown: {facts.size} instead of {file.size} bytes"
    if file.executable and not facts.executable:
        return f"{file.path.name} is not executable"
    if facts.digest is not None and file.digest:
        return "" if facts.digest == file.digest else f"{file.path.name} has another checksum than what was installed"
    return "" if facts.modified == file.modified else f"{file.path.name} was changed"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def observe(file: File, *, thorough: bool) -> Facts:
    """Look at a recorded file.

    Args:
        file: The file as it was recorded.
        thorough: Compute its checksum when it has one.
    """
    try:
        found = file.place.stat()
        executable = os.access(file.place, os.X_OK)
        worth_reading = thorough and bool(file.digest) and found.st_size == file.size
        content = digest(file.place) if worth_reading else None
    except OSError:
        return Facts(None)
    return Facts(found.st_size, found.st_mtime_ns, executable, content)


def intact(record: Record, *, thorough: bool) -> str:
    """What is wrong with a recorded binary; "" when nothing is.

    Args:
        record: What was recorded.
        thorough: Compare checksums too; else only where the modification
            time has changed, as it does when a cache is copied.
    """
    for file in record.files:
        facts = observe(file, thorough=thorough)
        wrong = damage(file, facts)
        if wrong and not thorough and file.digest:
            wrong = damage(file, observe(file, thorough=True))
        if wrong and facts.digest is not None and facts.modified == file.modified:
            # It changed and left no trace. With a new time, the cheap look notices it from now on.
            with suppress(PermissionError):
                os.utime(file.place)
        if wrong:
            return wrong
    for path in record.needs:
        if not path.exists():
            return f"{record.name} needs {path}, which is gone"
    return ""


def describe(path: Path, *, place: Path | None = None) -> File:
    """The file as it is now, to be recorded.

    Args:
        path: The file.
        place: For a file of ours: where it will be, below the cache folder;
            its checksum is then recorded too.
    """
    found = path.stat()
    return File(
        path=path if place is None else place,
        size=found.st_size,
        modified=found.st_mtime_ns,
        digest="" if place is None else digest(path),
        executable=os.access(path, os.X_OK),
    )


def _file(pin: Pin) -> Path:
    return settings.cache_home() / "toolchain" / "records" / f"{pin.key}.json"


def read(pin: Pin) -> Record | None:
    """The record of a binary, or None when there is none that can be read."""
    try:
        return Record.model_validate_json(_file(pin).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        # Written by another version of this package: as good as none, the binary is provided again.
        return None
    except OSError as error:
        raise PermanentError(
            f"cannot read {_file(pin)}: {error.strerror}", reason="CacheUnreadable", hint="check who owns the cache"
        ) from error


def write(pin: Pin, record: Record) -> None:
    """Record a binary, replacing what was recorded of it."""
    target = _file(pin)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(f".{os.getpid()}")
    aside.write_text(record.model_dump_json(indent=2), encoding="utf-8")
    aside.replace(target)


def forget(pin: Pin) -> None:
    """Remove the record of a binary, before its files are replaced."""
    _file(pin).unlink(missing_ok=True)
