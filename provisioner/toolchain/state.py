"""What is there, what is wrong, and what is to be done: decisions without I/O.

`judge` turns what was found of one binary into a state, `decide` turns the
states into a plan. Both are functions of values, so that every mixture of
missing, broken and foreign binaries can be tested without making one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from provisioner.toolchain.pins import Kit, Launcher, Package, Pin
from provisioner.toolchain.probe import Candidate
from provisioner.toolchain.record import Record, Source


class Condition(StrEnum):
    """Whether a binary can be used."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"
    UNSUITABLE = "unsuitable"


@dataclass(frozen=True)
class Binary:
    """A binary that can be used.

    Attributes:
        name: Its name.
        path: Where it is.
        version: The version it told, without a leading v.
        source: Who owns it: found on PATH, in our cache, or a Debian package.
        size: Bytes.
    """

    name: str
    path: Path
    version: str
    source: Source
    size: int


@dataclass(frozen=True)
class Observation:
    """All that was found of one binary.

    Attributes:
        pin: What is wanted.
        record: What was recorded when it was installed.
        fault: What is wrong with what was recorded; "" when nothing is.
        stray: A file stands in its place in the cache, but nothing was recorded.
        candidate: What else is on the machine; looked for only when the
            record will not do.
        size: Bytes of the candidate.
    """

    pin: Pin
    record: Record | None = None
    fault: str = ""
    stray: bool = False
    candidate: Candidate | None = None
    size: int = 0


@dataclass(frozen=True)
class State:
    """The state of one binary.

    Attributes:
        pin: What is wanted.
        condition: Whether it can be used.
        detail: What is wrong, or how the binary came there.
        binary: It, when it can be used.
        recorded: Whether it is known already.
    """

    pin: Pin
    condition: Condition
    detail: str = ""
    binary: Binary | None = None
    recorded: bool = False


def usable(pin: Pin, record: Record | None) -> bool:
    """Whether a record speaks of the binary that is wanted.

    Our language host runs on whatever release of the SDK is installed, so
    only one that is not ours has to match the engine.
    """
    if record is None:
        return False
    ours = isinstance(pin.origin, Launcher) and record.source == "cache"
    return ours or pin.accepts(record.version)


def of_record(record: Record) -> Binary:
    """The binary that a record speaks of."""
    return Binary(
        record.name, record.files[0].place, record.version, record.source, sum(file.size for file in record.files)
    )


def judge(seen: Observation) -> State:
    """The state of one binary, from all that was found of it.

    Args:
        seen: What was found.

    Returns:
        Its state. What was recorded and is intact comes first, then what is
        on the machine; only then it counts as broken, unsuitable or missing.
    """
    pin, record, candidate = seen.pin, seen.record, seen.candidate
    if record is not None and usable(pin, record) and not seen.fault:
        return State(pin, Condition.OK, record.origin, of_record(record), recorded=True)
    if candidate is not None and not candidate.fault:
        found = Binary(pin.name, candidate.path, candidate.version, candidate.source, seen.size)
        return State(pin, Condition.OK, f"found at {candidate.path}", found)
    if record is not None and record.source == "cache":
        return State(pin, Condition.BROKEN, seen.fault or f"{record.version} is recorded, {pin.wanted} is wanted")
    if seen.stray:
        return State(pin, Condition.BROKEN, "its installation was interrupted")
    if candidate is not None:
        return State(pin, Condition.UNSUITABLE, candidate.fault)
    return State(pin, Condition.MISSING, seen.fault)


@dataclass(frozen=True)
class KitPlan:
    """A kit of which some binaries are to be provided."""

    kit: Kit
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class Plan:
    """What `install` has to do, in this order.

    Attributes:
        adopt: Suitable binaries found on the machine, to be recorded.
        packages: Debian packages to install, and the binaries expected of them.
        kits: Kits to install or build.
        launchers: Scripts to write.
    """

    adopt: tuple[State, ...]
    packages: tuple[Package, ...]
    package_pins: tuple[Pin, ...]
    kits: tuple[KitPlan, ...]
    launchers: tuple[Pin, ...]

    @property
    def count(self) -> int:
        """How many binaries are to be provided."""
        return len(self.package_pins) + sum(len(item.pins) for item in self.kits) + len(self.launchers)


def decide(states: Iterable[State]) -> Plan:
    """What is to be done so that all binaries can be used.

    Args:
        states: The states of the binaries wanted.
    """
    adopt: list[State] = []
    packages: list[Package] = []
    package_pins: list[Pin] = []
    kits: dict[str, KitPlan] = {}
    launchers: list[Pin] = []
    for state in states:
        origin = state.pin.origin
        if state.condition is Condition.OK:
            adopt.extend([] if state.recorded else [state])
        elif isinstance(origin, Package):
            package_pins.append(state.pin)
            packages.extend([] if origin in packages else [origin])
        elif isinstance(origin, Kit):
            before = kits[origin.name].pins if origin.name in kits else ()
            kits[origin.name] = KitPlan(origin, (*before, state.pin))
        else:
            launchers.append(state.pin)
    return Plan(tuple(adopt), tuple(packages), tuple(package_pins), tuple(kits.values()), tuple(launchers))


def space_needed_gb(kits: Sequence[KitPlan]) -> float:
    """GB that building some kits takes on the disk for a while."""
    return round(sum(item.kit.space_gb for item in kits), 1)
