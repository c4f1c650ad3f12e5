"""What to do about what a killed operation left behind: decisions as functions of values.

Two things stay: the lock of a process that no longer exists, which would lock
the stack for ever, and pending operations, of which nobody knows whether they
happened. Both are settled without a question to anybody:

- A lock is cleared if its holder is certainly dead, never otherwise.
- A pending create is taken into the state under the name that it asked for, and
  a refresh then looks whether it is there: what exists is known from then on
  (and so updated or destroyed like anything else), what does not is dropped. An
  object of that name that does not carry the labels asked for belongs to
  somebody else and is dropped from the state untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from provisioner.engine.checkpoint import Checkpoint, Resource, edited
from provisioner.engine.process import ProcessFacts
from provisioner.engine.state import Lock
from provisioner.identity import PREFIX

# Seconds by which a process may seem to have started after a lock that it took:
# the kernel counts its start in ticks, and clocks are adjusted.
_CLOCK_SLACK = 2.0
# Seconds after which a lock that is being written has been abandoned.
_LONGEST_WRITE = 30.0
_CREATING = "creating"


class Holder(Enum):
    """What is known of a lock's holder."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


def judge(lock: Lock, *, stack: str, host: str, facts: ProcessFacts | None, now: datetime | None = None) -> Holder:
    """Whether the holder of a lock still lives.

    A pid proves nothing by itself: after a restart of the machine or of a
    container another process may have it. Such a one started after the lock was
    taken. In case a clock was set forward meanwhile, a process that names this
    very stack among its arguments counts as the holder all the same.

    Who was killed while it wrote its lock has named nobody. Such a file is
    dead when it is older than any write takes; should its writer only have been
    slow, it misses the file and gives up before it changes anything.

    Args:
        lock: The lock.
        stack: Name of the stack that it is on.
        host: Name of this machine.
        facts: Of the process with the lock's pid on this machine; None if there
            is none.
        now: The time, with its zone; this very moment by default.
    """
    if lock.unfinished:
        age = ((now or datetime.now(UTC)) - lock.time).total_seconds()
        return Holder.DEAD if age > _LONGEST_WRITE else Holder.UNKNOWN
    if lock.host != host:
        return Holder.UNKNOWN
    if facts is None:
        return Holder.DEAD
    if facts.started <= lock.time.timestamp() + _CLOCK_SLACK or stack in facts.command:
        return Holder.ALIVE
    return Holder.DEAD


def object_id(resource: Resource) -> str:
    """The provider's id of an object that was asked for by name: `NAMESPACE/NAME`; "" if it has no fixed name.

    Args:
        resource: With the inputs that were asked for.
    """
    metadata = resource.inputs.get("metadata")
    if not resource.type.startswith("kubernetes:") or not isinstance(metadata, Mapping):
        return ""
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not name:
        return ""
    return f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name


def _our_labels(properties: Mapping[str, Any]) -> dict[str, str]:
    metadata = properties.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    if not isinstance(labels, Mapping):
        return {}
    return {str(name): str(value) for name, value in labels.items() if str(name).startswith(f"{PREFIX}/")}


def adopt(checkpoint: Checkpoint) -> bytes | None:
    """Take the pending creates that can be looked up by name into the state.

    They stay among the pending operations too: should the refresh that follows
    be killed as well, it is known that it is still to be done.

    Args:
        checkpoint: As a killed operation left it.

    Returns:
        The new checkpoint, or None when there is none to take in.
    """
    known = {resource.urn for resource in checkpoint.resources}
    pending = checkpoint.deployment.get("pending_operations") or ()
    # Without outputs the provider reads the object by its id, as an import does.
    taken = [
        {**item["resource"], "id": object_id(operation.resource)}
        for item, operation in zip(pending, checkpoint.pending_operations, strict=True)
        if operation.kind == _CREATING and operation.resource.urn not in known and object_id(operation.resource)
    ]
    if not taken:
        return None
    resources = [*(checkpoint.deployment.get("resources") or ()), *taken]
    return edited(checkpoint, resources=resources, pending_operations=pending)


def settle(checkpoint: Checkpoint) -> bytes:
    """Forget the pending operations after a refresh, and the resources that turned out to be somebody else's.

    Args:
        checkpoint: After a refresh that looked at all resources.

    Returns:
        The new checkpoint.
    """
    foreign = set(foreign_objects(checkpoint))
    kept = (item for item in checkpoint.deployment.get("resources") or () if item["urn"] not in foreign)
    resources = [
        {**item, "dependencies": [urn for urn in item["dependencies"] if urn not in foreign]}
        if item.get("dependencies")
        else item
        for item in kept
    ]
    return edited(checkpoint, resources=resources, pending_operations=())


def foreign_objects(checkpoint: Checkpoint) -> tuple[str, ...]:
    """URNs of resources that were pending creates and whose objects lack the labels that were asked for.

    Args:
        checkpoint: After a refresh that looked at all resources.
    """
    wanted = {
        operation.resource.urn: _our_labels(operation.resource.inputs)
        for operation in checkpoint.pending_operations
        if operation.kind == _CREATING
    }
    return tuple(
        resource.urn
        for resource in checkpoint.resources
        if resource.urn in wanted and not wanted[resource.urn].items() <= _our_labels(resource.outputs).items()
    )
