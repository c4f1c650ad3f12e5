"""Which shared libraries a program needs, found as the dynamic loader finds them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from provisioner.errors import PermanentError

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
