"""The second listing: labelled objects of the cluster, page by page, and what is done to single ones.

Metadata alone is asked for, except of StatefulSets, whose status tells
whether anything of a service runs. Every change names the uid that was seen,
so that an object of the same name that came later is never hit.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from provisioner.cluster import ClusterClient, ForeignObject
from provisioner.cluster.api import (
    BUDGETS,
    CLAIMS,
    EVENTS,
    PODS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    Call,
    Resource,
)
from provisioner.cluster.leases import LEASES, Lease, parse_lease
from provisioner.cluster.parse import items, mapping, number, stack_of, text, time
from provisioner.cluster.transport import JSON, METADATA_LIST, ExpiredError, NotFoundError
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import ANNOTATION_NOTICE, LABEL_STACK, PREFIX, Identity
from provisioner.janitor.facts import ObjectFacts, PodFacts

T = TypeVar("T")

PAGE = 500
# How often a listing is begun before it is given up.
_LISTINGS = 3
_COMPONENT = f"{PREFIX}/janitor"
# Whole objects where their status counts, their metadata everywhere else.
_KINDS: tuple[tuple[Resource, str], ...] = (
    (STATEFULSETS, JSON),
    (SERVICES, METADATA_LIST),
    (SECRETS, METADATA_LIST),
    (BUDGETS, METADATA_LIST),
    (CLAIMS, METADATA_LIST),
    (PODS, METADATA_LIST),
    (LEASES, JSON),
)
_BY_KIND = {resource.kind: resource for resource, _ in _KINDS}
# Without the right to see these a sweep still sees every service.
_OPTIONAL = frozenset({SECRETS, BUDGETS, LEASES})
# A pod that was ready for less than this was never of use to anybody.
_MOMENT = timedelta(seconds=5)


@dataclass(frozen=True)
class Labelled:
    """What carries our label.

    Attributes:
        objects: By stack; without Leases, and without what another object owns.
        leases: By stack.
        dependents: Pods and claims that another object owns, by stack.
        unlisted: Kinds that may not be listed.
    """

    objects: Mapping[str, tuple[ObjectFacts, ...]]
    leases: Mapping[str, tuple[Lease, ...]]
    dependents: Mapping[str, tuple[ObjectFacts, ...]]
    unlisted: tuple[str, ...] = ()


class Objects:
    """Lists and changes labelled objects; safe for several threads.

    Args:
        client: The cluster.
        namespaces: Where to look; everywhere when empty.
    """

    def __init__(self, client: ClusterClient, namespaces: Sequence[str] = ()) -> None:
        self._client = client
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)

    def cluster(self) -> str:
        """Uid of the cluster's kube-system namespace."""
        return self._client.cluster_id()

    def foreign(self, identity: Identity) -> list[ForeignObject]:
        """Objects that have the names of a service and do not carry its label.

        Args:
            identity: The service.
        """
        return self._client.foreign(identity)

    def labelled(self, stack: str | None = None) -> Labelled:
        """What carries our label.

        Args:
            stack: Only what carries that of this stack.

        Raises:
            ProvisionerError: A kind that is needed cannot be listed.
        """
        selector = LABEL_STACK if stack is None else f"{LABEL_STACK}={stack}"
        objects: defaultdict[str, list[ObjectFacts]] = defaultdict(list)
        dependents: defaultdict[str, list[ObjectFacts]] = defaultdict(list)
        leases: defaultdict[str, list[Lease]] = defaultdict(list)
        unlisted = []
        for resource, accept in _KINDS:
            try:
                if resource is LEASES:
                    for lease in self._all(resource, selector, accept, parse_lease):
                        leases[lease.stack].append(lease)
                    continue
                for item in self._all(resource, selector, accept, partial(_object, resource.kind)):
                    (dependents if item.dependent else objects)[item.stack].append(item)
            except PermanentError as error:
                if resource not in _OPTIONAL or error.reason not in ("Forbidden", "NotFound"):
                    raise
                unlisted.append(resource.plural)
        return Labelled(_frozen(objects), _frozen(leases), _frozen(dependents), tuple(unlisted))

    def pods(self, stack: str) -> tuple[PodFacts, ...]:
        """The pods of a stack, and whether they were ever ready.

        Args:
            stack: Name of the stack.
        """
        return tuple(self._all(PODS, f"{LABEL_STACK}={stack}", JSON, _pod))

    def _all(self, resource: Resource, selector: str, accept: str, read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        return [
            item
            for namespace in self._namespaces
            for item in self._listed(Call("list", resource, namespace), selector, accept, read)
        ]

    def _listed(self, call: Call, selector: str, accept: str, read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        # A listing that expires halfway is thrown away as a whole: its pages are of one moment.
        for _ in range(_LISTINGS - 1):
            try:
                return self._listed_once(call, selector, accept, read)
            except ExpiredError:
                continue
        return self._listed_once(call, selector, accept, read)

    def _listed_once(self, call: Call, selector: str, accept: str, read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        query: dict[str, str | int] = {"labelSelector": selector, "limit": PAGE}
        found: list[T] = []
        while True:
            page = self._client.transport.json(call, query=query, accept=accept)
            found += [read(item) for item in items(page, "items")]
            token = mapping(page, "metadata").get("continue")
            if not token:
                return found
            query["continue"] = str(token)

    def delete(self, item: ObjectFacts) -> bool:
        """Delete one object.

        Args:
            item: As it was listed.

        Returns:
            Whether it was this one, and still there.
        """
        return self._delete(_BY_KIND[item.kind], item.namespace, item.name, item.uid)

    def delete_lease(self, lease: Lease) -> bool:
        """Delete one user's Lease, unless it was renewed meanwhile.

        Args:
            lease: As it was listed.
        """
        return self._delete(LEASES, lease.namespace, lease.name, lease.uid, version=lease.version)

    def _delete(self, resource: Resource, namespace: str, name: str, uid: str, *, version: str = "") -> bool:
        preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            self._client.transport.json(Call("delete", resource, namespace, name), body=body)
        except NotFoundError:
            return False
        except TransientError as error:
            if error.reason == "Conflict":  # the API server's answer to preconditions that do not hold
                return False
            raise
        return True

    def annotate(self, item: ObjectFacts, notice: str | None) -> bool:
        """Put the notice on an object, or take it off.

        Args:
            item: As it was listed.
            notice: The text; None takes it off.

        Returns:
            Whether it was this one, and still there.
        """
        metadata = {"uid": item.uid, "annotations": {ANNOTATION_NOTICE: notice}}
        call = Call("patch", _BY_KIND[item.kind], item.namespace, item.name)
        try:
            self._client.transport.json(call, body={"metadata": metadata})
        except NotFoundError:
            return False
        except TransientError as error:
            if error.reason == "Conflict":
                return False
            raise
        return True

    def say(self, item: ObjectFacts, reason: str, message: str, *, warning: bool, now: datetime) -> None:
        """Say something about an object as a Kubernetes event.

        Args:
            item: The object; it may be gone.
            reason: CamelCase code.
            message: A sentence.
            warning: Whether it is a warning.
            now: The time, with its zone.

        Raises:
            ProvisionerError: It cannot be said.
        """
        resource, when = _BY_KIND[item.kind], now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{item.name}.{secrets.token_hex(8)}", "namespace": item.namespace},
            "involvedObject": {
                "apiVersion": f"{resource.group}/{resource.version}" if resource.group else resource.version,
                "kind": item.kind,
                "namespace": item.namespace,
                "name": item.name,
                "uid": item.uid,
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": _COMPONENT},
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
        }
        self._client.transport.json(Call("create", EVENTS, item.namespace), body=body)


def _object(kind: str, document: Mapping[str, Any]) -> ObjectFacts:
    metadata = mapping(document, "metadata")
    return ObjectFacts(
        kind=kind,
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        stack=stack_of(metadata),
        annotations=_ours(mapping(metadata, "annotations")),
        labels=_ours(mapping(metadata, "labels")),
        created=time(metadata, "creationTimestamp"),
        deleted=time(metadata, "deletionTimestamp"),
        dependent=bool(items(metadata, "ownerReferences")),
        replicas=number(mapping(document, "spec"), "replicas", 1) if kind == STATEFULSETS.kind else 0,
        ready=number(mapping(document, "status"), "readyReplicas") if kind == STATEFULSETS.kind else 0,
    )


def _ours(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key.startswith(f"{PREFIX}/") and isinstance(value, str)}


def _pod(document: Mapping[str, Any]) -> PodFacts:
    metadata, status = mapping(document, "metadata"), mapping(document, "status")
    condition = next((item for item in items(status, "conditions") if text(item, "type") == "Ready"), {})
    started, changed = time(status, "startTime"), time(condition, "lastTransitionTime")
    # Kubelet says "not ready" when it takes a pod; a later change to it means that it was ready in between.
    was_ready = started is not None and changed is not None and changed - started > _MOMENT
    return PodFacts(
        name=text(metadata, "name"),
        created=time(metadata, "creationTimestamp"),
        ever_ready=text(condition, "status") == "True" or was_ready,
    )


def _frozen(found: Mapping[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {stack: tuple(values) for stack, values in found.items()}
