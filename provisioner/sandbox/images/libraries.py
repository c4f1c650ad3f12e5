"""Which shared libraries a program needs, found as the dynamic loader finds them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from provisioner.errors import PermanentError
from provisioner.sandbox.images.layer import image_cache

_BATCH = 200


@dataclass(frozen=True)
class Libraries:
    """The libraries of one program.

    Attributes:
        found: Their paths, as the loader opens them.
        missing: Names that the loader does not find.
    """

    found: frozenset[Path]
    missing: frozenset[str]


def parse_ldd(output: str, only: Path | None = None) -> dict[Path, Libraries]:
    r"""Read what ldd prints: file -> its libraries.

    Args:
        output: Of one ldd for any number of files.
        only: The file, when it was just one; ldd names a file only among several.

    Example:
        >>> text = "\tlibm.so.6 => /lib/libm.so.6 (0x1)\n\tlibx.so => not found"
        >>> sorted(parse_ldd(text, Path("/bin/p"))[Path("/bin/p")].missing)
        ['libx.so']
    """
    read: dict[Path, tuple[set[Path], set[str]]] = {}
    current = only
    for line in output.splitlines():
        if not line.startswith("\t"):
            current = Path(line.strip().removesuffix(":"))
            continue
        found, missing = read.setdefault(current or Path(), (set(), set()))
        name, arrow, rest = line.strip().partition(" => ")
        place = rest if arrow else name
        if place.startswith("not found"):
            missing.add(name)
        elif place.startswith("/"):
            found.add(Path(place.rpartition(" (")[0] or place))
    return {path: Libraries(frozenset(found), frozenset(missing)) for path, (found, missing) in read.items()}


def libraries_of(files: Iterable[Path]) -> dict[Path, Libraries]:
    """What each of these programs and libraries loads, directly or through others.

    Args:
        files: ELF files of this machine. One that loads nothing is left out of the answer.

    Raises:
        PermanentError: There is no ldd.
    """
    paths = sorted(set(files))
    known = image_cache() / "libraries" / _key(paths)
    answer = _recall(known)
    if answer is None:
        answer = _ask_loader(paths)
        known.parent.mkdir(parents=True, exist_ok=True)
        fresh = known.with_suffix(f".{os.getpid()}")
        facts = {str(path): [sorted(map(str, one.found)), sorted(one.missing)] for path, one in answer.items()}
        fresh.write_text(json.dumps(facts))
        fresh.replace(known)
    return answer


def _key(paths: list[Path]) -> str:
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _recall(known: Path) -> dict[Path, Libraries] | None:
    """What was found for the same files before, unless one of the libraries is no longer there."""
    if not known.exists():
        return None
    answer = {
        Path(path): Libraries(frozenset(map(Path, found)), frozenset(missing))
        for path, (found, missing) in json.loads(known.read_text()).items()
    }
    gone = any(not path.exists() for one in answer.values() for path in one.found)
    return None if gone or any(one.missing for one in answer.values()) else answer


def _ask_loader(paths: list[Path]) -> dict[Path, Libraries]:
    answer: dict[Path, Libraries] = {}
    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH]
        try:
            done = subprocess.run(["ldd", *batch], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise PermanentError(
                "there is no `ldd` on this machine to find shared libraries with",
                reason="NoLdd",
                hint="install the C library's tools (Debian: libc-bin)",
            ) from None
        answer |= parse_ldd(done.stdout, batch[0] if len(batch) == 1 else None)
    return answer


def is_library(path: Path) -> bool:
    """Whether a file is a shared library, by name and content."""
    if ".so" not in path.suffixes or not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"
