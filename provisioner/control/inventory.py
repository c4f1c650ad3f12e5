"""All services at a glance: the cluster's objects and the backend's stacks, joined by stack.

Two listings answer it, whatever the number of services. A checkpoint is read
only for a stack of which the cluster shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from provisioner.cluster.live import ListedSet, LiveObjects
from provisioner.control.recorded import recorded
from provisioner.engine import StateReader
from provisioner.errors import PermanentError


class State(StrEnum):
    """How a service is, as far as a listing tells."""

    READY = "Ready"
    NOT_READY = "NotReady"
    PAUSED = "Paused"
    REMOVING = "Removing"
    ABSENT = "Absent"
    UNRECORDED = "Unrecorded"
    UNREADABLE = "Unreadable"


@dataclass(frozen=True)
class Listed:
    """One service of the listing.

    Attributes:
        stack: Name of its stack.
        service: Its own name; the stack's when that is all there is.
        namespace: Kubernetes namespace, or "".
        project: Flyte project, or "".
        domain: Flyte domain, or "".
        owner: Name of the execution that owns it, or "".
        ready: Replicas that are ready at the current revision.
        wanted: Replicas that are asked for.
        state: How it is.
        created: When its StatefulSet was made; None when there is none.
    """

    stack: str
    service: str
    namespace: str = ""
    project: str = ""
    domain: str = ""
    owner: str = ""
    ready: int = 0
    wanted: int = 0
    state: State = State.ABSENT
    created: datetime | None = None

    @property
    def whose(self) -> str:
        """Whose it is, in one word."""
        return ":".join(part for part in (self.project, self.domain, self.owner) if part)


def inventory(state: StateReader, live: LiveObjects, namespace: str | None) -> list[Listed]:
    """All services.

    Args:
        state: The backend.
        live: The cluster.
        namespace: Where to look in the cluster; None for everywhere.

    Returns:
        By namespace and name.
    """
    stacks = set(state.stacks())
    sets = {item.found.stack: item for item in live.statefulsets(namespace)}
    shown = [of_set(item, item.found.stack in stacks) for item in sets.values()]
    shown += _absent(state, stacks - set(sets))
    return sorted(shown, key=lambda item: (item.namespace, item.service, item.stack))


def of_set(item: ListedSet, is_recorded: bool) -> Listed:
    """A service of which the cluster has the StatefulSet.

    Args:
        item: That.
        is_recorded: Whether the backend has its stack.
    """
    found = item.found
    current = found.update_revision != "" and found.observed_generation >= found.generation
    # Ready pods of an old revision do not count; how many there are, a listing does not tell.
    ready = min(found.ready_replicas, found.updated_replicas, found.replicas) if current else 0
    if found.deleted is not None:
        state = State.REMOVING
    elif not is_recorded:
        state = State.UNRECORDED
    elif found.replicas == 0 and found.current_replicas == 0 and current:
        state = State.PAUSED
    else:
        whole = ready == found.replicas == found.current_replicas and found.current_revision == found.update_revision
        state = State.READY if whole and found.replicas else State.NOT_READY
    return Listed(
        found.stack,
        found.name,
        found.namespace,
        item.project,
        item.domain,
        item.owner,
        ready,
        found.replicas,
        state,
        found.created,
    )


def _absent(state: StateReader, stacks: Iterable[str]) -> list[Listed]:
    listed = []
    for stack in stacks:
        try:
            checkpoint = state.checkpoint(stack)
            record = recorded(checkpoint)
        except PermanentError:
            listed.append(Listed(stack, stack, state=State.UNREADABLE))
            continue
        if checkpoint is None:
            continue  # it was removed since the listing
        if record is None:
            listed.append(Listed(stack, stack))
            continue
        identity = record.identity
        listed.append(
            Listed(
                stack,
                identity.service,
                identity.namespace,
                identity.project,
                identity.domain,
                identity.owner,
                wanted=record.spec.replicas,
            )
        )
    return listed
