"""One service as both listings show it together: its stack, its objects, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from provisioner.cluster.leases import Lease
from provisioner.identity import (
    ANNOTATION_BACKEND,
    ANNOTATION_DELETION_POLICY,
    ANNOTATION_OWNER,
    ANNOTATION_OWNER_OBJECT,
    ANNOTATION_START_DEADLINE,
    ANNOTATION_TTL,
    ANNOTATION_USERS,
    LABEL_DOMAIN,
    LABEL_OWNER,
    LABEL_PROJECT,
    USERS_LEASE,
)
from provisioner.janitor.facts import Case, CheckpointFacts, Inventory, ObjectFacts, Owner, PodFacts, StackFacts
from provisioner.spec import parse_duration

STATEFUL_SET = "StatefulSet"
CLAIM = "PersistentVolumeClaim"
# The object whose annotations count when several of a stack disagree.
_SPOKESMEN = (STATEFUL_SET, "Service")


@dataclass(frozen=True)
class Subject:
    """One service.

    Attributes:
        stack: Name of its stack: the label of its objects.
        record: Its stack in the backend, if there is one.
        objects: Its objects in the cluster but for claims.
        claims: Its claims.
        leases: Leases of its users.
        pods: Its pods, if it was looked at them.
        case: What is remembered of it.
    """

    stack: str
    record: StackFacts | None = None
    objects: tuple[ObjectFacts, ...] = ()
    claims: tuple[ObjectFacts, ...] = ()
    leases: tuple[Lease, ...] = ()
    pods: tuple[PodFacts, ...] | None = None
    case: Case | None = None

    @property
    def checkpoint(self) -> CheckpointFacts | None:
        """What is in its checkpoint, if that was read."""
        return self.record.checkpoint if self.record is not None else None

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of its objects; where they disagree the StatefulSet's word counts before the others'."""
        merged: dict[str, str] = {}
        for item in reversed(self._ordered):
            merged.update((name, value) for name, value in item.annotations.items() if value)
        return merged

    @cached_property
    def _ordered(self) -> tuple[ObjectFacts, ...]:
        found = (*self.objects, *self.claims)
        first = [item for kind in _SPOKESMEN for item in found if item.kind == kind]
        return (*first, *(item for item in found if item.kind not in _SPOKESMEN))

    def annotation(self, name: str) -> str:
        """An annotation of its objects, or "".

        Args:
            name: Its name.
        """
        return self.annotations.get(name, "")

    @cached_property
    def owner(self) -> Owner | None:
        """Who it belongs to; None if neither its objects nor its checkpoint say."""
        parts = self.annotation(ANNOTATION_OWNER).split(":", 2)
        if len(parts) == 3:
            return Owner(*parts)
        identity = self.checkpoint.identity if self.checkpoint is not None else None
        if identity is not None:
            return Owner(identity.project, identity.domain, identity.owner)
        # Pods and claims carry the labels alone.
        for item in (*self.objects, *self.claims):
            if LABEL_OWNER in item.labels:
                labels = item.labels
                return Owner(labels.get(LABEL_PROJECT, ""), labels.get(LABEL_DOMAIN, ""), labels[LABEL_OWNER])
        return None

    @property
    def namespace(self) -> str:
        """Namespace of its objects, or "" if that is not known."""
        for item in self._ordered:
            return item.namespace
        identity = self.checkpoint.identity if self.checkpoint is not None else None
        return identity.namespace if identity is not None else ""

    @cached_property
    def stateful_set(self) -> ObjectFacts | None:
        """Its StatefulSet, if there is one."""
        return next((item for item in self.objects if item.kind == STATEFUL_SET), None)

    @property
    def owner_object(self) -> str:
        """Reference of the Kubernetes object that it belongs to, or ""."""
        return self.annotation(ANNOTATION_OWNER_OBJECT)

    @property
    def backend(self) -> str:
        """Id of the backend that its objects say they are recorded in, or ""."""
        return self.annotation(ANNOTATION_BACKEND)

    @property
    def shared(self) -> bool:
        """Whether its users hold leases, so that it is nobody's when none is left."""
        return self.annotation(ANNOTATION_USERS) == USERS_LEASE

    @cached_property
    def ttl(self) -> int | None:
        """Its lifetime in seconds, or None."""
        return _seconds(self.annotation(ANNOTATION_TTL)) or (self.checkpoint.ttl if self.checkpoint else None)

    @cached_property
    def start_deadline(self) -> int | None:
        """Seconds within which it had to be ready, or None."""
        annotated = _seconds(self.annotation(ANNOTATION_START_DEADLINE))
        return annotated or (self.checkpoint.start_deadline if self.checkpoint else None)

    @property
    def retain(self) -> bool:
        """Whether it stays when its owner has ended."""
        if self.objects:
            return self.annotation(ANNOTATION_DELETION_POLICY) == "Retain"
        return self.checkpoint is not None and self.checkpoint.retain

    @cached_property
    def created(self) -> datetime | None:
        """When it came to be, as far as it is known."""
        times = [item.created for item in (*self.objects, *self.claims) if item.created is not None]
        if times:
            return min(times)
        return self.record.modified if self.record is not None else None

    @property
    def touched(self) -> datetime | None:
        """When somebody changed it last."""
        times = [item.created for item in self.objects or self.claims if item.created is not None]
        if self.record is not None and self.record.modified is not None:
            times.append(self.record.modified)
        return max(times, default=None)

    def age(self, now: datetime) -> timedelta | None:
        """How long it has existed."""
        return now - self.created if self.created is not None else None


def _seconds(text: str) -> int | None:
    if not text:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        # Written by hand or by another version: as if it were not there, never as if it had passed.
        return None


def subjects(inventory: Inventory) -> Iterator[Subject]:
    """Join both listings: every service that any of them knows, in the order of their names.

    Args:
        inventory: What was listed.
    """
    names = {*inventory.stacks, *inventory.objects, *inventory.leases, *inventory.cases, *inventory.remains}
    for name in sorted(names):
        found = inventory.objects.get(name, ())
        yield Subject(
            stack=name,
            record=inventory.stacks.get(name),
            objects=tuple(item for item in found if item.kind != CLAIM),
            claims=tuple(item for item in found if item.kind == CLAIM),
            leases=inventory.leases.get(name, ()),
            pods=inventory.pods.get(name),
            case=inventory.cases.get(name),
        )
