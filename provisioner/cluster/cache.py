"""The one shared view of the cluster: a poll is answered from memory.

One watch per kind serves every service, so the requests to the API server do
not grow with the number of services or polls. What it costs is honesty about
time: a snapshot says whether it is fresh, and nothing above may call a service
ready from one that is not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import structlog

from provisioner.cluster import parse
from provisioner.cluster.api import CLAIMS, EVENTS, NAMESPACES, PODS, SERVICES, STATEFULSETS
from provisioner.cluster.client import ClusterClient
from provisioner.cluster.health import Health, Timing
from provisioner.cluster.metrics import CACHED_OBJECTS
from provisioner.cluster.objects import Claim, Event, Namespace, Pod, Service, Snapshot, StatefulSet
from provisioner.cluster.reflector import Item, Reflector, Target
from provisioner.cluster.store import EventStore, NamespaceStore, Object, ObjectStore
from provisioner.cluster.transport import METADATA, METADATA_LIST
from provisioner.identity import LABEL_STACK, Identity

STOP_SECONDS = 1.0
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_OURS = ("labelSelector", LABEL_STACK)
_WARNINGS = ("fieldSelector", "type=Warning")
_KINDS: dict[str, type[Object]] = {
    "StatefulSet": StatefulSet,
    "Pod": Pod,
    "Service": Service,
    "PersistentVolumeClaim": Claim,
}
_EVENT_KINDS = {kind: name for name, kind in _KINDS.items()}
_log = structlog.get_logger(__name__)


def _targets(namespaces: Sequence[str]) -> list[Target]:
    targets = []
    for where in namespaces or (None,):
        targets += [
            Target(STATEFULSETS, parse.statefulset, where, _OURS),
            Target(PODS, parse.pod, where, _OURS),
            Target(SERVICES, parse.service, where, _OURS, accept=(METADATA_LIST, METADATA)),
            Target(CLAIMS, parse.claim, where, _OURS),
            Target(EVENTS, parse.event, where, _WARNINGS, optional=True),
        ]
    if not namespaces:
        accept = (METADATA_LIST, METADATA)
        targets.append(Target(NAMESPACES, parse.namespace, accept=accept, optional=True))
    return targets


class ClusterCache:
    """What there is of every service, kept up to date by one watch per kind.

    Args:
        client: The cluster.
        namespaces: Where to watch; empty for everywhere, which needs a
            cluster role. One watch per kind and namespace otherwise.
        timing: How long the watches wait for what.

    Example:
        >>> cache = ClusterCache(client)  # doctest: +SKIP
        >>> cache.start()  # doctest: +SKIP
        >>> cache.snapshot(identity).pods  # doctest: +SKIP
    """

    def __init__(self, client: ClusterClient, *, namespaces: Sequence[str] = (), timing: Timing | None = None) -> None:
        self._timing = timing or Timing()
        self._reflectors = [
            Reflector(client.transport, target, self, self._timing) for target in _targets(tuple(namespaces))
        ]
        self._change = threading.Condition()
        self._objects = ObjectStore()
        self._events = EventStore()
        self._namespaces = NamespaceStore()
        self._subscribers: list[Callable[[str], None]] = []

    def start(self) -> None:
        """Begin to watch, in threads of its own; returns at once."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """End the watches, within about a second."""
        for reflector in self._reflectors:
            reflector.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for reflector in self._reflectors:
            if not reflector.join(max(0.0, deadline - time.monotonic())):
                _log.debug("a watch ends later", resource=reflector.target.resource.plural)

    def synced(self) -> bool:
        """Whether every kind that is needed was listed once."""
        return all(health.synced for health in self._required())

    def wait_synced(self, seconds: float) -> bool:
        """Wait until every kind that is needed was listed once.

        Args:
            seconds: For how long at most.

        Returns:
            Whether it was; `problems` says why not.
        """
        deadline = time.monotonic() + seconds
        with self._change:
            while not self.synced():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                # A watch that comes back without news notifies nobody.
                self._change.wait(min(left, 0.2))
        return True

    def age(self) -> float:
        """Seconds since the last contact of the watch that is furthest behind."""
        now = time.monotonic()
        return max(0.0, now - min(health.complete(now, self._timing) for health in self._required()))

    def problems(self) -> list[str]:
        """What is wrong with the watches now, each of it once, however many have it; empty when nothing is."""
        details: dict[tuple[str, str], bool] = {}
        for reflector in self._reflectors:
            error = reflector.health.problem
            if error is not None:
                said = error.message, error.hint
                details[said] = details.get(said, True) and reflector.target.optional
        return [
            message + (" (only details are lost)" if lost else "") + (f"; {hint}" if hint else "")
            for (message, hint), lost in details.items()
        ]

    def snapshot(self, identity: Identity) -> Snapshot:
        """All that is known of one service, from memory.

        Args:
            identity: Which service.
        """
        stale_reason = self._stale_reason()
        with self._change:
            objects = [item for item in self._objects.of(identity.stack) if item.namespace == identity.namespace]
            events = [event for item in objects for event in self._about(item)]
            namespace_deleted = self._namespaces.deleted(identity.namespace)
        named = {type(item): item for item in objects if item.name == identity.service}
        statefulset, service = named.get(StatefulSet), named.get(Service)
        pods = sorted((item for item in objects if isinstance(item, Pod)), key=lambda pod: (pod.ordinal, pod.name))
        claims = sorted((item for item in objects if isinstance(item, Claim)), key=lambda claim: claim.name)
        return Snapshot(
            fresh=not stale_reason,
            stale_reason=stale_reason,
            age=self.age(),
            statefulset=statefulset if isinstance(statefulset, StatefulSet) else None,
            service=service if isinstance(service, Service) else None,
            pods=tuple(pods),
            claims=tuple(claims),
            events=tuple(sorted(events, key=lambda event: (event.last or _BEGINNING, event.name))),
            namespace_deleted=namespace_deleted,
        )

    def statefulsets(self) -> list[StatefulSet]:
        """The StatefulSets of all services."""
        with self._change:
            return self._objects.all(StatefulSet)

    def stack_of(self, namespace: str, service: str) -> str | None:
        """The stack that a service belongs to, by its name; None when there is no such service.

        Args:
            namespace: Its namespace.
            service: Name of its StatefulSet.
        """
        with self._change:
            return self._objects.owner("StatefulSet", (namespace, service))

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Be told when something of a service changed.

        Args:
            callback: Called with the name of the stack, from the watch's own
                thread: it must return quickly.
        """
        with self._change:
            self._subscribers.append(callback)

    def replaced(self, target: Target, found: Sequence[Item]) -> None:
        """A reflector listed everything (its Sink)."""
        changed: set[str] = set()
        with self._change:
            if target.resource is EVENTS:
                self._events.replace((item for item in found if isinstance(item, Event)), target.namespace)
                self._events.trim(self._objects)
            elif target.resource is NAMESPACES:
                self._namespaces.replace(item for item in found if isinstance(item, Namespace))
            else:
                kind = _KINDS[target.resource.kind]
                objects = [item for item in found if not isinstance(item, Event | Namespace)]
                changed = self._objects.replace(kind, objects, target.namespace)
            self._count()
            self._change.notify_all()
        self._tell(changed)

    def changed(self, item: Item, *, deleted: bool) -> None:
        """A reflector saw one change (its Sink)."""
        with self._change:
            changed = self._take(item, deleted=deleted)
            self._count()
            self._change.notify_all()
        self._tell(changed)

    def _take(self, item: Item, *, deleted: bool) -> set[str]:
        if isinstance(item, Namespace):
            if deleted:
                self._namespaces.drop(item.name)
            else:
                self._namespaces.put(item)
            return set()
        if isinstance(item, Event):
            if deleted:
                # An event expires an hour after it was said: that tells nothing new of its object.
                self._events.drop((item.namespace, item.name))
                return set()
            if not self._events.put(item):
                return set()
            self._events.trim(self._objects)
            owner = self._objects.owner(item.kind, (item.namespace, item.object))
            return {owner} if owner else set()
        if deleted:
            return self._objects.drop(type(item), (item.namespace, item.name))
        return self._objects.put(item)

    def _about(self, item: Object) -> Iterable[Event]:
        """The events about an object and those before it that had its name."""
        return self._events.about(_EVENT_KINDS[type(item)], item.namespace, item.name)

    def _tell(self, stacks: Iterable[str]) -> None:
        for stack in stacks:
            for callback in self._subscribers:
                try:
                    callback(stack)
                except Exception:  # noqa: BLE001 (logged with its traceback; the watch serves others too)
                    _log.exception("a subscriber failed", stack_name=stack)

    def _count(self) -> None:
        for kind in _KINDS.values():
            CACHED_OBJECTS.labels(kind.__name__).set(self._objects.count(kind))
        CACHED_OBJECTS.labels("Event").set(len(self._events))

    def _required(self) -> list[Health]:
        return [reflector.health for reflector in self._reflectors if not reflector.target.optional]

    def _stale_reason(self) -> str:
        """Why what is known cannot be relied on now, or ""."""
        now = time.monotonic()
        for reflector in self._reflectors:
            target = reflector.target
            reason = "" if target.optional else reflector.health.stale(target.resource.plural, now, self._timing)
            if reason:
                return reason
        return ""
