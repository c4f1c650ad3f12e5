"""The working folders of one installation, and how a binary gets into its place.

Everything is made aside, below one folder in the cache (the same file
system), checked there, and renamed into place in an order that makes a kill
at any moment harmless: what belongs to the binary, the binary, its record.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from provisioner import settings
from provisioner.errors import PermanentError
from provisioner.toolchain import probe, process, record
from provisioner.toolchain.pins import Launcher, Pin
from provisioner.toolchain.process import Limits, Outcome

_HOURS = 3600.0


def toolchain_home() -> Path:
    """The toolchain's folder in the cache."""
    return settings.cache_home() / "toolchain"


def place_of(pin: Pin) -> Path | None:
    """Where a binary belongs in the cache; None for one that the system owns."""
    return None if pin.home is None else settings.cache_home() / pin.home / pin.name


def leftovers() -> list[Path]:
    """Working folders that an installation left: for the next one to continue from, or to be removed."""
    home = toolchain_home()
    return [folder for folder in (home / "build", *home.glob("removed-*")) if folder.exists()]


@dataclass(frozen=True)
class Work:
    """One installation under way.

    Attributes:
        lock: Descriptor of the installer's lock.
        tick: Told the last line of the log, several times a second.
        note: Told what the user should know, one line each.
    """

    lock: int
    tick: Callable[[str], None]
    note: Callable[[str], None]
    build: Path = field(default_factory=lambda: toolchain_home() / "build")

    @property
    def stage(self) -> Path:
        """Where files are made before they are put in place."""
        return self.build / "stage"

    @property
    def temporary(self) -> Path:
        """The temporary folder of the commands."""
        return self.stage / "tmp"

    def log_of(self, name: str) -> Path:
        """The log of one binary's installation."""
        return toolchain_home() / "logs" / f"{name}.log"

    def prepare(self) -> None:
        """Make the folders; what an installation that was killed left half done is removed, its caches are kept."""
        remove_tree(self.stage)
        for folder in (self.temporary, self.log_of("any").parent):
            folder.mkdir(parents=True, exist_ok=True)

    def finish(self) -> None:
        """Remove all working folders, caches included, and those of earlier installations."""
        if self.build.exists():
            # Renamed first: half removed, a cache would mislead the next build.
            self.build.rename(toolchain_home() / f"removed-{os.getpid()}")
        for leftover in leftovers():
            remove_tree(leftover)

    def run(
        self,
        name: str,
        command: Sequence[str],
        environment: dict[str, str],
        *,
        folder: Path | None = None,
        limits: Limits | None = None,
    ) -> Outcome:
        """Run a command of one binary's installation; see `process.run`."""
        return process.run(
            command,
            log=self.log_of(name),
            folder=folder or self.stage,
            environment={**environment, "TMPDIR": str(self.temporary)},
            limits=limits or Limits(seconds=2 * _HOURS),
            lock=self.lock,
            tick=self.tick,
        )


def remove_tree(folder: Path) -> None:
    """Remove a folder with all in it, read-only folders too (Go makes its module cache so)."""
    if not folder.exists():
        return
    for parent, names, _ in os.walk(folder):
        for name in ("", *names):
            place = Path(parent) / name
            if not place.is_symlink() and not os.access(place, os.W_OK | os.X_OK):
                place.chmod(stat.S_IRWXU)
    shutil.rmtree(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(
    pin: Pin,
    staged: Path,
    origin: str,
    *,
    beside: dict[PurePosixPath, Path] | None = None,
    needs: tuple[Path, ...] = (),
) -> None:
    """Check a binary that was made aside, and put it into the cache.

    Args:
        pin: What is wanted.
        staged: The binary, below the working folder.
        origin: How it was made, in words, for its record.
        beside: Files that belong to it: their place in its folder -> where
            they are now, on the same file system.
        needs: Files elsewhere that it cannot run without.

    Raises:
        PermanentError: It is not what was wanted; nothing was put in place.
    """
    if pin.home is None:
        raise PermanentError(f"{pin.name} belongs to the system, not to the cache", reason="ToolNotOurs")
    staged.chmod(0o755)
    version = probe.version_of(staged, pin) if isinstance(pin.origin, Launcher) else probe.demand(staged, pin)
    home = Path(pin.home)
    moves = [(staged, home / pin.name)]
    moves += [(path, home / place) for place, path in (beside or {}).items()]
    files = tuple(record.describe(source, place=target) for source, target in moves)
    record.forget(pin)
    for source, target in reversed(moves):
        _sync(source)
        place = settings.cache_home() / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            remove_tree(place)
        source.replace(place)
    record.write(
        pin,
        record.Record(name=pin.name, version=version, source="cache", origin=origin, files=files, needs=needs),
    )


def fail(name: str, log: Path, outcome: Outcome, doing: str) -> PermanentError:
    """The error of a command that did not succeed, with its log named."""
    how = "took too long" if outcome.code is None else f"failed with exit code {outcome.code}"
    with suppress(OSError):
        _sync(log)
    return PermanentError(
        f"{doing} {name} {how}: {outcome.last_line or 'no output'}",
        reason="ToolBuildFailed",
        hint=f"the whole output is in {log}; run the same command again to continue",
    )
