"""Which files an installed Python package consists of, with all that it requires."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from provisioner.errors import UsageError

# What a program at work never imports.
_TOOLS = frozenset({"pip", "setuptools", "wheel"})


def _installed(requirement: Requirement) -> metadata.Distribution:
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        raise UsageError(
            f"the package {requirement.name!r} is not installed in this Python environment",
            reason="NoSuchPackage",
            hint=f"install it first, or leave it out of --with: pip install {requirement.name}",
        ) from None
    if not requirement.specifier.contains(found.version, prereleases=True):
        raise UsageError(
            f"{requirement} is asked for, but {found.version} is installed",
            reason="WrongVersion",
            hint=f"pip install '{requirement}'",
        )
    return found


def closure(packages: Iterable[str]) -> list[metadata.Distribution]:
    """The distributions of some packages and of everything that they require here.

    Args:
        packages: Requirements such as `numpy` or `uvicorn[standard]>=0.30`.

    Returns:
        Each distribution once, by name.

    Raises:
        UsageError: One is not a requirement, not installed, or of another version.
    """
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [_parse(package) for package in packages]
    while todo:
        requirement = todo.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if name in _TOOLS or (name, extras) in seen:
            continue
        seen.add((name, extras))
        distribution = found[name] = _installed(requirement)
        for text in distribution.requires or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras or {""}):
                todo.append(inner)
    return [found[name] for name in sorted(found)]


def _parse(package: str) -> Requirement:
    try:
        return Requirement(package)
    except InvalidRequirement as error:
        raise UsageError(f"{package!r} is not a package: {error}", reason="InvalidPackage") from error


def is_needed(path: Path) -> bool:
    """Whether a file of a package is of use to a program that imports the package.

    Args:
        path: Relative to the folder of all packages.
    """
    parts = path.parts
    if ".." in parts or path.is_absolute() or "__pycache__" in parts or path.suffix in (".pyc", ".pth"):
        return False
    inner = next((index for index, part in enumerate(parts[:-1]) if part in ("tests", "test")), None)
    # Some packages import private modules of their own tests (numpy.testing did).
    return inner is None or parts[inner + 1].startswith("_")


def files(distribution: metadata.Distribution) -> dict[str, Path]:
    """Path below the folder of packages -> file on this machine.

    Args:
        distribution: One that is installed.

    Raises:
        UsageError: It is installed in a way that does not say which files are its own.
    """
    name = distribution.metadata["Name"]
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable") or distribution.files is None:
        raise UsageError(
            f"the package {name!r} is installed as a link to its sources (editable)",
            reason="EditablePackage",
            hint="add its folder: --add path/to/package:/app/package",
        )
    found = {}
    for path in distribution.files:
        place = Path(str(distribution.locate_file(path)))
        if is_needed(Path(str(path))) and place.is_file():
            found[str(path)] = place
    return found


def commands(distribution: metadata.Distribution, interpreter: str) -> dict[str, str]:
    """Name of a command -> the script that runs it.

    Those that stand on this machine begin with its virtual environment, which
    the image does not have.

    Args:
        distribution: One that is installed.
        interpreter: Path of Python in the image.
    """
    found = {}
    for entry in distribution.entry_points.select(group="console_scripts"):
        start = entry.attr.partition(".")[0]
        call = f"import sys\nfrom {entry.module} import {start}\nsys.exit({entry.attr}())\n"
        found[entry.name] = f"#!{interpreter}\n{call}"
    return found
