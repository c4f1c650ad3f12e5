"""What the janitor knows when it decides: two listings, joined by stack, and nothing that could be asked again.

Everything here is a frozen value, so that a decision can be repeated, tested
and explained from what was known, whoever found it out and how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.cluster.leases import Lease
from provisioner.engine.recovery import Holder
from provisioner.identity import FLYTE2, LOCAL_PROJECT, Identity


@dataclass(frozen=True, slots=True)
class Owner:
    """The Flyte execution that a service belongs to.

    Attributes:
        project: Flyte project.
        domain: Flyte domain.
        execution: Name of the execution; "" for a service that no execution owns.
    """

    project: str
    domain: str
    execution: str

    @property
    def unknowable(self) -> bool:
        """Whether no source knows it: a workflow on somebody's own machine, or a run of Flyte 2."""
        return self.project == LOCAL_PROJECT or self.execution.startswith(FLYTE2)

    @classmethod
    def of_lease(cls, lease: Lease) -> Owner | None:
        """The execution that holds a Lease; None if its holder is no execution.

        Args:
            lease: Of a user of a shared service.
        """
        project, _, rest = lease.holder.partition(":")
        domain, _, rest = rest.partition(":")
        execution = rest.partition(":")[0]
        return cls(project, domain, execution) if project and domain and execution else None

    def __str__(self) -> str:
        return f"{self.project}:{self.domain}:{self.execution}"


@dataclass(frozen=True, slots=True)
class Alive:
    """Somebody needs the service.

    Attributes:
        why: How that is known.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The owner needs nothing any more.

    Attributes:
        why: How that is known.
        at: When it ended; None if nobody can say.
        failed: Whether it ended with a failure that people may want to look at.
        reason: What kind of owner it was, as a CamelCase code.
    """

    why: str
    at: datetime | None = None
    failed: bool = False
    reason: str = "OwnerEnded"


@dataclass(frozen=True, slots=True)
class Unknown:
    """It could not be found out, which is no reason to remove anything.

    Attributes:
        why: What went wrong.
    """

    why: str


Liveness = Alive | Ended | Unknown


@dataclass(frozen=True, slots=True)
class LockFacts:
    """One lock of a stack.

    Attributes:
        holder: Whether its holder lives.
        text: Who that is.
        place: Full name of the lock in the backend.
    """

    holder: Holder
    text: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What matters of a checkpoint.

    Attributes:
        identity: Whose service it is; None if that was never recorded.
        ttl: Its lifetime in seconds, or None.
        start_deadline: Seconds within which it had to be ready, or None.
        retain: Whether it stays when its owner has ended.
        cluster: Uid of the kube-system namespace of its cluster, or "".
        applied: Whether it was ever applied in full.
        resources: Number of resources that it holds or that were being made,
            Pulumi's own bookkeeping left out.
        objects: Number of Kubernetes objects among them.
        uids: Uids of those, as far as they are recorded.
        deleting: Whether a deletion was under way when it was written, or the last operation was one that failed.
        protected: Names of resources with Pulumi's `protect`.
        unreadable: Why it cannot be read, or "".
    """

    identity: Identity | None = None
    ttl: int | None = None
    start_deadline: int | None = None
    retain: bool = False
    cluster: str = ""
    applied: bool = False
    resources: int = 0
    objects: int = 0
    uids: frozenset[str] = frozenset()
    deleting: bool = False
    protected: tuple[str, ...] = ()
    unreadable: str = ""

    @property
    def empty(self) -> bool:
        """Whether nothing was ever recorded in it, or all of it is deleted."""
        return self.resources == 0 and not self.unreadable

    @property
    def foreign(self) -> bool:
        """Whether it holds something that is no data service."""
        return self.resources > 0 and self.identity is None


@dataclass(frozen=True, slots=True)
class StackFacts:
    """One stack of the backend.

    Attributes:
        name: Its name.
        modified: When its checkpoint was written last, if the backend says so.
        locks: Its locks.
        checkpoint: What is in it; None if it was not read.
    """

    name: str
    modified: datetime | None = None
    locks: tuple[LockFacts, ...] = ()
    checkpoint: CheckpointFacts | None = None


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """One labelled object of the cluster, other than a Lease.

    Attributes:
        kind: For example `StatefulSet`.
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        stack: Value of our stack label.
        annotations: Those with our prefix.
        labels: Those with our prefix.
        created: When it was made.
        deleted: When its deletion was asked for, or None.
        dependent: Whether another object owns it, so that Kubernetes removes it with that.
        replicas: Replicas that a StatefulSet asks for; 0 for others.
        ready: Replicas of a StatefulSet that are ready; 0 for others.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    stack: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    created: datetime | None = None
    deleted: datetime | None = None
    dependent: bool = False
    replicas: int = 0
    ready: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod of a service that is not ready.

    Attributes:
        name: Its name.
        created: When it was made.
        ever_ready: Whether it is ready or was once.
    """

    name: str
    created: datetime | None
    ever_ready: bool


@dataclass(frozen=True, slots=True)
class Case:
    """What the janitor remembers of something that is to go, from one sweep to the next.

    Attributes:
        stack: Name of the stack.
        reason: Why it is to go.
        first_seen: When that was found.
        failures: Failed attempts in a row.
        retry_at: Not before when the next attempt is made; None after no failure.
        error_reason: CamelCase code of the last failure, or "".
        error: Its message.
        steps: What a person can do about it, in order.
    """

    stack: str
    reason: str
    first_seen: datetime
    failures: int = 0
    retry_at: datetime | None = None
    error_reason: str = ""
    error: str = ""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inventory:
    """All that is known at one moment.

    Attributes:
        cluster: Uid of this cluster's kube-system namespace.
        backend: Id of this backend.
        namespaces: The namespaces that were listed; empty when all were.
        stacks: By name.
        objects: Labelled objects by stack, Leases and dependent objects left out.
        leases: Leases of users by stack.
        executions: What is known of owners.
        referents: What is known of objects that own services, by their reference.
        pods: Pods of services that are not ready, by stack, where it was looked.
        cases: What is remembered, by stack.
        remains: Stacks that are gone from the backend but left something
            there, with the time of their last change if it is known.
        surplus: Stacks with more backups than are kept.
        unlisted: What could not be listed and is not needed for a decision.
    """

    cluster: str
    backend: str = ""
    namespaces: tuple[str, ...] = ()
    stacks: Mapping[str, StackFacts] = field(default_factory=dict)
    objects: Mapping[str, tuple[ObjectFacts, ...]] = field(default_factory=dict)
    leases: Mapping[str, tuple[Lease, ...]] = field(default_factory=dict)
    executions: Mapping[Owner, Liveness] = field(default_factory=dict)
    referents: Mapping[str, Liveness] = field(default_factory=dict)
    pods: Mapping[str, tuple[PodFacts, ...]] = field(default_factory=dict)
    cases: Mapping[str, Case] = field(default_factory=dict)
    remains: Mapping[str, datetime | None] = field(default_factory=dict)
    surplus: frozenset[str] = frozenset()
    unlisted: tuple[str, ...] = ()

    def end_of(self, lease: Lease, now: datetime) -> Ended | None:
        """Why a Lease speaks no more for its service; None while it does.

        Args:
            lease: Of a user of a shared service.
            now: The time.
        """
        user = Owner.of_lease(lease)
        execution = self.executions.get(user) if user is not None else None
        if isinstance(execution, Ended):
            return Ended(f"its user {lease.holder} ended", execution.at)
        return None if lease.held(now) else Ended("the lease of its last user expired", lease.expires)
