"""Look at every binary: the reading side of the toolchain.

`locate` is what the rest of the package calls before it starts something; it
reads one small file and looks at one other, and runs nothing when the binary
is known. `status` trusts nothing: it computes the checksum of all we own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from provisioner import settings
from provisioner.errors import PermanentError
from provisioner.toolchain import pins, probe, record, work
from provisioner.toolchain.pins import DEFAULT_GROUPS, Group, Pin
from provisioner.toolchain.state import Binary, Condition, Observation, State, judge, usable

PROVIDER_KIT = "pulumi-resource-kubernetes"


def _observe(pin: Pin, *, thorough: bool) -> Observation:
    known = record.read(pin)
    fault = record.intact(known, thorough=thorough) if known is not None else ""
    if usable(pin, known) and not fault:
        return Observation(pin, known)
    place = work.place_of(pin)
    candidate = probe.search(pin)
    size = candidate.path.stat().st_size if candidate is not None else 0
    return Observation(pin, known, fault, place is not None and place.exists(), candidate, size)


def survey(wanted: Sequence[Pin], *, thorough: bool) -> tuple[State, ...]:
    """The states of some binaries.

    Args:
        wanted: The binaries.
        thorough: Compare checksums too.
    """
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        return tuple(pool.map(lambda pin: judge(_observe(pin, thorough=thorough)), wanted))


def status(groups: Iterable[Group] = DEFAULT_GROUPS) -> tuple[State, ...]:
    """The state of every binary of some groups.

    Args:
        groups: The groups; by default engine and sandbox.

    Raises:
        PermanentError: The cache cannot be read.
    """
    return survey(pins.load().select(groups), thorough=True)


def locate(name: str) -> Binary:
    """Where a binary is.

    Args:
        name: Its name, for example `kube-apiserver`.

    Raises:
        UsageError: The toolchain has no binary of that name.
        PermanentError: It is not there, or broken (reason ToolMissing).

    Example:
        >>> locate("pulumi").version  # doctest: +SKIP
        '3.274.1'
    """
    pin = pins.load().find(name)
    state = judge(_observe(pin, thorough=False))
    if state.binary is None or state.condition is not Condition.OK:
        why = f" ({state.detail})" if state.detail else ""
        raise PermanentError(
            f"{name} {pin.wanted} is {state.condition}{why}",
            reason="ToolMissing",
            hint=f"run `provisioner toolchain install --group {pin.group}`",
        )
    return state.binary


def pulumi_home() -> Path:
    """The folder that PULUMI_HOME names, so that the engine finds our provider."""
    kit = next(kit for kit in pins.load().kit if kit.name == PROVIDER_KIT)
    # The engine's own layout: $PULUMI_HOME/plugins/resource-NAME-vVERSION/.
    return (settings.cache_home() / kit.home).parents[1]


def environment() -> dict[str, str]:
    """Variables under which the plain `pulumi` command works with this toolchain.

    Returns:
        PATH, with the folders of pulumi and of the language host before the
        user's own, and PULUMI_HOME.

    Raises:
        PermanentError: One of them is not there (reason ToolMissing).
    """
    folders = dict.fromkeys(str(locate(name).path.parent) for name in ("pulumi", pins.load().launcher.name))
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "PULUMI_HOME": str(pulumi_home())}
