"""The few facts that we keep of each Kubernetes object, as small frozen values.

A Pod as the API server sends it takes some 30 KB in Python; what readiness and
diagnosis need of it takes less than two. So objects are trimmed when they
enter the cache, and nothing above this package ever sees a client's model.
Names are Kubernetes' own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_ORDINAL = re.compile(r"-([0-9]+)$")


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container ended.

    Attributes:
        exit_code: Its exit code.
        signal: The signal that ended it, or 0.
        reason: `Error`, `OOMKilled`, `StartError`, ...
        message: What the runtime or the container itself said.
        started_at: When it had started.
        finished_at: When it ended.
    """

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod, as kubelet sees it.

    Attributes:
        name: Its name.
        image: The image it was asked to run.
        init: Whether it is an init container.
        ready: Whether it is ready.
        restarts: How often it was started again.
        waiting_reason: Why it does not run, or "".
        waiting_message: The long form of it.
        running_since: When it started, if it runs.
        terminated: How it ended, if it has and was not started again.
        last: How its previous run ended, if there was one.
    """

    name: str
    image: str = ""
    init: bool = False
    ready: bool = False
    restarts: int = 0
    waiting_reason: str = ""
    waiting_message: str = ""
    running_since: datetime | None = None
    terminated: Termination | None = None
    last: Termination | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a pod.

    Attributes:
        type: For example `PodScheduled`.
        status: `True`, `False` or `Unknown`.
        reason: CamelCase code.
        message: The long form of it.
        since: Since when it has been so.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        stack: Value of our stack label.
        revision: Revision of the StatefulSet that it was made from.
        node: Node that it is bound to, or "".
        phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        reason: Why the whole pod is in this phase, for example `Evicted`.
        message: The long form of it.
        ready: Whether its Ready condition is True.
        created: When it was made.
        deleted: When its deletion was asked for, or None.
        conditions: Those that tell of something: each that is not as in a healthy pod.
        containers: Init containers first.
    """

    namespace: str
    name: str
    uid: str = ""
    stack: str = ""
    revision: str = ""
    node: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    ready: bool = False
    created: datetime | None = None
    deleted: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    containers: tuple[Container, ...] = ()

    @property
    def ordinal(self) -> int:
        """The number at the end of its name; -1 when there is none."""
        match = _ORDINAL.search(self.name)
        return int(match[1]) if match else -1

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type, if it tells of something."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


@dataclass(frozen=True, slots=True)
class StatefulSet:
    """One StatefulSet.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        stack: Value of our stack label.
        digest: Hash of the specification that it was made from.
        generation: Generation of its spec.
        observed_generation: Generation that its controller has seen.
        replicas: Replicas that its spec asks for.
        current_replicas: Pods that exist (status.replicas).
        ready_replicas: Pods that are ready.
        updated_replicas: Pods of the update revision.
        current_revision: Revision before the update.
        update_revision: Revision of its spec.
        created: When it was made.
        deleted: When its deletion was asked for, or None.
    """

    namespace: str
    name: str
    uid: str = ""
    stack: str = ""
    digest: str = ""
    generation: int = 0
    observed_generation: int = 0
    replicas: int = 0
    current_replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    created: datetime | None = None
    deleted: datetime | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """One Service: that it exists is all that matters.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        stack: Value of our stack label.
        created: When it was made.
        deleted: When its deletion was asked for, or None.
    """

    namespace: str
    name: str
    uid: str = ""
    stack: str = ""
    created: datetime | None = None
    deleted: datetime | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """One PersistentVolumeClaim.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        stack: Value of our stack label.
        phase: `Pending`, `Bound` or `Lost`.
        storage_class: Name of its storage class, or "".
        requested: How much storage it asks for, as a quantity.
        created: When it was made.
        deleted: When its deletion was asked for, or None.
    """

    namespace: str
    name: str
    uid: str = ""
    stack: str = ""
    phase: str = ""
    storage_class: str = ""
    requested: str = ""
    created: datetime | None = None
    deleted: datetime | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event: what a component of the cluster said about an object.

    Attributes:
        namespace: Its namespace.
        name: Its own name.
        kind: Kind of the object.
        object: Name of the object.
        uid: Uid of the object.
        reason: CamelCase code.
        message: What was said.
        count: How often.
        first: When for the first time.
        last: When for the last time.
    """

    namespace: str
    name: str
    kind: str = ""
    object: str = ""
    uid: str = ""
    reason: str = ""
    message: str = ""
    count: int = 1
    first: datetime | None = None
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace: whether it is going away is all that matters.

    Attributes:
        name: Its name.
        deleted: When its deletion was asked for, or None.
    """

    name: str
    deleted: datetime | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known of one service at one moment.

    Attributes:
        fresh: Whether it can be relied on: every kind was listed, and each
            watch was in contact with the API server a short time ago.
        stale_reason: Why it is not fresh, or "".
        age: Seconds since the last contact of the watch that is furthest behind.
        statefulset: The service's StatefulSet, if it exists with our label.
        service: The service's headless Service, if it exists with our label.
        pods: Its pods, by ordinal.
        claims: Its claims, by name.
        events: What was said about these objects and about earlier ones of
            the same names (another uid), the newest last.
        namespace_deleted: When the deletion of its namespace was asked for, or None.
    """

    fresh: bool = True
    stale_reason: str = ""
    age: float = 0.0
    statefulset: StatefulSet | None = None
    service: Service | None = None
    pods: tuple[Pod, ...] = ()
    claims: tuple[Claim, ...] = ()
    events: tuple[Event, ...] = ()
    namespace_deleted: datetime | None = None


@dataclass(frozen=True, slots=True)
class PodRef:
    """One run of one container, by which its log is fetched.

    Attributes:
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container.
        previous: Whether the run before the present one is meant.
    """

    namespace: str
    pod: str
    container: str
    previous: bool = False
