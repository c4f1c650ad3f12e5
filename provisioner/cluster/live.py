"""Whole objects and what was said about them, read from the API server when a person asks.

The cache keeps the few facts that readiness and diagnosis need. A comparison
with what was applied, a list of events, a look at claims that nobody owns any
more: these are rare, and read here in full.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from provisioner.cluster import parse
from provisioner.cluster.api import (
    BUDGETS,
    CLAIMS,
    EVENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    STORAGE_CLASSES,
    VERSION,
    Call,
    Resource,
)
from provisioner.cluster.objects import Event, Pod, StatefulSet
from provisioner.cluster.parse import items, mapping, text
from provisioner.cluster.transport import METADATA_LIST, NotFoundError, Transport
from provisioner.errors import TransientError
from provisioner.identity import LABEL_DOMAIN, LABEL_OWNER, LABEL_PROJECT, LABEL_STACK, Identity, label_value

_PAGE = 500
_KINDS = {resource.kind: resource for resource in (STATEFULSETS, SERVICES, SECRETS, BUDGETS)}
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class SpokenEvent:
    """One event, and whether it is a warning.

    Attributes:
        event: What was said.
        warning: Whether its type is `Warning`.
    """

    event: Event
    warning: bool


@dataclass(frozen=True)
class ListedSet:
    """A StatefulSet of ours, and whose it is by its labels.

    Attributes:
        found: The StatefulSet.
        project: Flyte project.
        domain: Flyte domain.
        owner: Name of the execution that owns it, or "".
    """

    found: StatefulSet
    project: str
    domain: str
    owner: str


@dataclass(frozen=True)
class SizedSet:
    """How large a StatefulSet of ours is.

    Attributes:
        stack: Name of its stack.
        replicas: Replicas that it asks for.
        limits: Resource -> quantity, what one replica may take.
    """

    stack: str
    replicas: int
    limits: Mapping[str, str]


@dataclass(frozen=True)
class KeptClaim:
    """A claim that carries the label of a stack.

    Attributes:
        name: Its name.
        uid: Its uid.
        size: What it asks for, as a quantity.
        going: Whether it is being deleted, or goes with its StatefulSet.
    """

    name: str
    uid: str
    size: str
    going: bool


@dataclass(frozen=True)
class Server:
    """The API server.

    Attributes:
        host: Its URL.
        version: For example `v1.36.3`.
        ahead: Seconds by which its clock is ahead of ours; the answer's own
            second and the time that the call took are the error.
        took: Seconds that the call took.
    """

    host: str
    version: str
    ahead: float
    took: float


class LiveObjects:
    """Reads whole objects; safe for use by many threads.

    Args:
        transport: How to call.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One object as it is now.

        Args:
            kind: StatefulSet, Service, Secret or PodDisruptionBudget.
            namespace: Its namespace.
            name: Its name.
        """
        try:
            return self._transport.json(Call("get", _KINDS[kind], namespace, name))
        except NotFoundError:
            return None

    def statefulset(self, identity: Identity) -> StatefulSet | None:
        """The StatefulSet of a service, None when there is none of its own."""
        found = self.get("StatefulSet", identity.namespace, identity.service)
        parsed = parse.statefulset(found) if found is not None else None
        return parsed if parsed is not None and parsed.stack == identity.stack else None

    def statefulsets(self, namespace: str | None) -> Iterator[ListedSet]:
        """All StatefulSets that carry the label of a stack.

        Args:
            namespace: Where; None for everywhere.
        """
        for item in self._list(STATEFULSETS, namespace, {"labelSelector": LABEL_STACK}):
            labels = mapping(mapping(item, "metadata"), "labels")
            whose = (text(labels, label) for label in (LABEL_PROJECT, LABEL_DOMAIN, LABEL_OWNER))
            yield ListedSet(parse.statefulset(item), *whose)

    def sized(self, project: str, domain: str) -> Iterator[SizedSet]:
        """The sizes of all services of one project and domain.

        Args:
            project: Flyte project.
            domain: Flyte domain.
        """
        labels = {LABEL_PROJECT: label_value(project), LABEL_DOMAIN: label_value(domain)}
        selector = ",".join([LABEL_STACK, *(f"{name}={value}" for name, value in labels.items())])
        for item in self._list(STATEFULSETS, None, {"labelSelector": selector}):
            spec = mapping(item, "spec")
            pod = mapping(mapping(spec, "template"), "spec")
            limits: dict[str, str] = {}
            for container in items(pod, "containers"):
                limits |= {
                    name: str(value) for name, value in mapping(mapping(container, "resources"), "limits").items()
                }
            yield SizedSet(parse.stack_of(mapping(item, "metadata")), parse.number(spec, "replicas"), limits)

    def pods(self, identity: Identity) -> tuple[Pod, ...]:
        """The pods of a service."""
        query = {"labelSelector": f"{LABEL_STACK}={identity.stack}"}
        return tuple(parse.pod(item) for item in self._list(PODS, identity.namespace, query))

    def claims(self, identity: Identity) -> tuple[KeptClaim, ...]:
        """The claims of a service, also those that outlived it.

        Args:
            identity: The service.
        """
        query = {"labelSelector": f"{LABEL_STACK}={identity.stack}"}
        return tuple(_claim(item) for item in self._list(CLAIMS, identity.namespace, query))

    def delete_claim(self, namespace: str, claim: KeptClaim) -> None:
        """Delete one claim, and none of the same name that came after it.

        Args:
            namespace: Its namespace.
            claim: Which.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": claim.uid}}
        try:
            self._transport.json(Call("delete", CLAIMS, namespace, claim.name), body=body)
        except NotFoundError:
            return
        except TransientError as error:
            if error.reason != "Conflict":
                raise

    def events(self, identity: Identity) -> tuple[SpokenEvent, ...]:
        """What was said about a service's objects in the last hour or so, the newest last.

        Args:
            identity: The service.
        """
        found = [
            SpokenEvent(parse.event(item), text(item, "type") == "Warning")
            for item in self._list(EVENTS, identity.namespace, {})
            if _is_about(mapping(item, "involvedObject"), identity.service)
        ]
        beginning = datetime.min.replace(tzinfo=UTC)
        return tuple(sorted(found, key=lambda spoken: (spoken.event.last or beginning, spoken.event.name)))

    def default_storage_class(self) -> str | None:
        """Name of the cluster's default StorageClass, or None."""
        query = {"limit": _PAGE}
        page = self._transport.json(Call("list", STORAGE_CLASSES), query=query, accept=METADATA_LIST)
        for item in items(page, "items"):
            metadata = mapping(item, "metadata")
            if text(mapping(metadata, "annotations"), _DEFAULT_CLASS) == "true":
                return text(metadata, "name")
        return None

    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces."""
        page = self._transport.json(Call("list", NAMESPACES), accept=METADATA_LIST)
        return tuple(text(mapping(item, "metadata"), "name") for item in items(page, "items"))

    def server(self) -> Server:
        """Which API server answers, and what time it has."""
        before = time.time()
        response = self._transport.open(Call("get", VERSION))
        try:
            content, date = response.read(), response.headers.get("Date", "")
        finally:
            response.release_conn()
        took = time.time() - before
        document = json.loads(content)
        # The header counts whole seconds: the middle of one is the best guess.
        theirs = parsedate_to_datetime(date).timestamp() + 0.5 if date else before
        return Server(self._transport.host, text(document, "gitVersion"), theirs - (before + took / 2), took)

    def _list(
        self, resource: Resource, namespace: str | None, query: Mapping[str, str | int]
    ) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        asked: dict[str, str | int] = {**query, "limit": _PAGE}
        while True:
            page = self._transport.json(Call("list", resource, namespace), query=asked)
            found += items(page, "items")
            token = mapping(page, "metadata").get("continue")
            if not token:
                return found
            asked["continue"] = str(token)


def _claim(document: Mapping[str, Any]) -> KeptClaim:
    metadata = mapping(document, "metadata")
    # With a policy of Delete the StatefulSet's controller makes itself the claim's owner.
    going = "deletionTimestamp" in metadata or bool(items(metadata, "ownerReferences"))
    size = text(mapping(mapping(mapping(document, "spec"), "resources"), "requests"), "storage")
    return KeptClaim(text(metadata, "name"), text(metadata, "uid"), size, going)


def _is_about(subject: Mapping[str, Any], service: str) -> bool:
    kind, name = text(subject, "kind"), text(subject, "name")
    if kind in _KINDS:
        return name == service
    base, dash, ordinal = name.rpartition("-")
    if not (dash and ordinal.isdecimal()):
        return False
    return (kind == "Pod" and base == service) or (kind == "PersistentVolumeClaim" and base.endswith(f"-{service}"))
