"""Leases (coordination.k8s.io/v1): who uses a shared service, and who of several replicas is the elected one.

A user of a shared service holds one Lease that carries the label of its stack.
What stands in it is Kubernetes' own: `holderIdentity` names the user
(`PROJECT:DOMAIN:EXECUTION`, or with a node of it `PROJECT:DOMAIN:EXECUTION:NODE`),
`renewTime` plus `leaseDurationSeconds` says until when. To release it is to
delete it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.cluster.api import Call, Resource
from provisioner.cluster.parse import items, mapping, number, stack_of, text, time
from provisioner.cluster.transport import NotFoundError, Transport
from provisioner.errors import PermanentError
from provisioner.identity import LABEL_STACK, dns_name

LEASES = Resource("Lease", "coordination.k8s.io", "v1", "leases")


@dataclass(frozen=True, slots=True)
class Lease:
    """One Lease.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        version: Its resource version, for an update that must not overwrite another's.
        stack: Value of our stack label, or "".
        holder: Who holds it: `PROJECT:DOMAIN:EXECUTION[:NODE]` for a user of a shared service.
        duration: Seconds for which one renewal counts; 0 if it does not say.
        renewed: When it was renewed last.
        created: When it was made.
        transitions: How often it changed hands.
    """

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    stack: str = ""
    holder: str = ""
    duration: int = 0
    renewed: datetime | None = None
    created: datetime | None = None
    transitions: int = 0

    @property
    def expires(self) -> datetime | None:
        """Until when it counts; None when it counts until it is deleted."""
        since = self.renewed or self.created
        if self.duration <= 0 or since is None:
            return None
        return since + timedelta(seconds=self.duration)

    def held(self, now: datetime) -> bool:
        """Whether it counts.

        Args:
            now: The time, with its zone.
        """
        expires = self.expires
        return expires is None or now < expires


def parse_lease(document: Mapping[str, Any]) -> Lease:
    """A Lease from the API server's JSON."""
    metadata, spec = mapping(document, "metadata"), mapping(document, "spec")
    return Lease(
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        version=text(metadata, "resourceVersion"),
        stack=stack_of(metadata),
        holder=text(spec, "holderIdentity"),
        duration=number(spec, "leaseDurationSeconds"),
        renewed=time(spec, "renewTime") or time(spec, "acquireTime"),
        created=time(metadata, "creationTimestamp"),
        transitions=number(spec, "leaseTransitions"),
    )


def micro_time(moment: datetime) -> str:
    """A time as Kubernetes' MicroTime.

    Args:
        moment: With its zone.

    Example:
        >>> micro_time(datetime(2026, 5, 9, 7, 0, tzinfo=UTC))
        '2026-05-09T07:00:00.000000Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lease_manifest(namespace: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """The manifest of a Lease.

    Args:
        namespace: Its namespace.
        name: Its name.
        spec: Its specification.
        metadata: What else stands in its metadata.
    """
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def user_lease_name(stack: str, holder: str) -> str:
    """The name of the Lease of one user of one shared service: the same for a repeat.

    Args:
        stack: Name of the service's stack.
        holder: Who uses it.
    """
    return dns_name(stack, holder, length=63)


def user_lease(stack: str, namespace: str, holder: str, *, seconds: int, now: datetime) -> dict[str, Any]:
    """The manifest of the Lease of one user of a shared service.

    Args:
        stack: Name of the service's stack.
        namespace: The service's namespace.
        holder: Who uses it: `PROJECT:DOMAIN:EXECUTION[:NODE]`.
        seconds: For how long one renewal counts.
        now: The time, with its zone.
    """
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "acquireTime": micro_time(now),
        "renewTime": micro_time(now),
    }
    return lease_manifest(namespace, user_lease_name(stack, holder), spec, labels={LABEL_STACK: stack})


class UserLeases:
    """The Leases of users at the API server; safe for use by many threads.

    Args:
        transport: How to call.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def take(self, stack: str, namespace: str, holder: str, *, seconds: int, now: datetime) -> None:
        """Take the Lease of a user, or renew it.

        Args:
            stack: Name of the service's stack.
            namespace: The service's namespace.
            holder: Who uses it.
            seconds: For how long it counts from now on.
            now: The time, with its zone.

        Raises:
            ProvisionerError: It is not taken.
        """
        name = user_lease_name(stack, holder)
        spec = {"renewTime": micro_time(now), "leaseDurationSeconds": seconds}
        try:
            self._transport.json(Call("patch", LEASES, namespace, name), body={"spec": spec})
        except NotFoundError:
            manifest = user_lease(stack, namespace, holder, seconds=seconds, now=now)
            try:
                self._transport.json(Call("create", LEASES, namespace), body=manifest)
            except PermanentError as error:
                # Another server took it for the same user at the same moment.
                if error.reason != "AlreadyExists":
                    raise

    def give_back(self, stack: str, namespace: str, holder: str) -> None:
        """Delete the Lease of a user; it need not exist.

        Args:
            stack: Name of the service's stack.
            namespace: The service's namespace.
            holder: Who used it.

        Raises:
            ProvisionerError: It is still there.
        """
        try:
            self._transport.json(Call("delete", LEASES, namespace, user_lease_name(stack, holder)))
        except NotFoundError:
            return

    def of(self, stack: str, namespace: str) -> tuple[Lease, ...]:
        """The Leases on a service, read from the API server now.

        Args:
            stack: Name of the service's stack.
            namespace: The service's namespace.
        """
        query = {"labelSelector": f"{LABEL_STACK}={stack}"}
        page = self._transport.json(Call("list", LEASES, namespace), query=query)
        return tuple(parse_lease(item) for item in items(page, "items"))
