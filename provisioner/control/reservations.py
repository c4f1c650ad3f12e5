"""What services take that are being made, told to the other servers: a Lease for each project and domain.

The Lease is changed only by who has seen its last version, so that of two
servers which count at one moment one counts again. Whoever reads it first and
the cluster's objects afterwards misses nothing: a reservation ends after its
StatefulSet can be seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from provisioner.cluster.api import Call
from provisioner.cluster.leases import LEASES, lease_manifest
from provisioner.cluster.parse import mapping, text
from provisioner.cluster.transport import NotFoundError, Transport
from provisioner.control.access import Consumption
from provisioner.errors import ProvisionerError
from provisioner.identity import PREFIX, dns_name

_ANNOTATION = f"{PREFIX}/quota-"
_LENGTH = 63


@dataclass(frozen=True)
class Reserved:
    """What one service takes while one server makes it.

    Attributes:
        stack: Its stack.
        holder: Which server, and which of its attempts.
        taken: What it takes.
        until: When the server has ended in any case.
    """

    stack: str
    holder: str
    taken: Consumption
    until: datetime

    @property
    def annotation(self) -> str:
        """Name of its annotation on the Lease."""
        return _ANNOTATION + dns_name(self.stack, self.holder, length=_LENGTH - len("quota-"))


def parse_reserved(value: str) -> Reserved | None:
    """A reservation as it stands in an annotation; None for anything else.

    Args:
        value: The annotation's value.
    """
    try:
        document = json.loads(value)
        taken = Consumption(**{name: int(document["taken"][name]) for name in asdict(Consumption())})
        until = datetime.fromisoformat(document["until"]).astimezone(UTC)
        return Reserved(str(document["stack"]), str(document["holder"]), taken, until)
    except (ValueError, KeyError, TypeError):
        return None


def _written(reserved: Reserved) -> str:
    document = {"stack": reserved.stack, "holder": reserved.holder, "taken": asdict(reserved.taken)}
    return json.dumps(document | {"until": reserved.until.isoformat()}, separators=(",", ":"))


@dataclass(frozen=True)
class Seen:
    """A Lease as it was read.

    Attributes:
        version: Its resource version; "" where there is none yet.
        reserved: What counts.
        over: Annotations that count no more.
    """

    version: str
    reserved: tuple[Reserved, ...]
    over: tuple[str, ...] = ()


class Reservations:
    """The reservations at the API server.

    Args:
        transport: Calls the API server.
        namespace: Where the Leases are: the same for all servers of a backend.
        seconds: After which a server that makes a service has ended in any case.
        now: The time, with its zone.
    """

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        seconds: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._lasting = timedelta(seconds=seconds)
        self._now = now

    def read(self, project: str, domain: str) -> Seen:
        """What is reserved.

        Args:
            project: Flyte project.
            domain: Flyte domain.

        Raises:
            ProvisionerError: It cannot be read.
        """
        try:
            document = self._transport.json(Call("get", LEASES, self._namespace, _name(project, domain)))
        except NotFoundError:
            return Seen("", ())
        metadata = mapping(document, "metadata")
        annotations = {key: value for key, value in mapping(metadata, "annotations").items() if _is_ours(key)}
        found = {key: parse_reserved(str(value)) for key, value in annotations.items()}
        counted = {key: item for key, item in found.items() if item is not None and item.until > self._now()}
        over = tuple(key for key in found if key not in counted)
        return Seen(text(metadata, "resourceVersion"), tuple(counted.values()), over)

    def add(self, project: str, domain: str, seen: Seen, stack: str, holder: str, taken: Consumption) -> Reserved:
        """Reserve, unless anything was reserved since.

        Args:
            project: Flyte project.
            domain: Flyte domain.
            seen: What was counted.
            stack: Of the service.
            holder: Who makes it.
            taken: What it takes.

        Returns:
            The reservation.

        Raises:
            ProvisionerError: It is not reserved; by reason `Conflict` or
                `AlreadyExists` another server was first.
        """
        reserved = Reserved(stack, holder, taken, self._now() + self._lasting)
        annotations: dict[str, str | None] = {**dict.fromkeys(seen.over), reserved.annotation: _written(reserved)}
        name = _name(project, domain)
        if seen.version:
            body = {"metadata": {"resourceVersion": seen.version, "annotations": annotations}}
            self._transport.json(Call("patch", LEASES, self._namespace, name), body=body)
            return reserved
        spec = {"holderIdentity": f"{project}:{domain}"}
        document = lease_manifest(self._namespace, name, spec, annotations=annotations)
        self._transport.json(Call("create", LEASES, self._namespace), body=document)
        return reserved

    def end(self, project: str, domain: str, reserved: Reserved) -> None:
        """End a reservation.

        Args:
            project: Flyte project.
            domain: Flyte domain.
            reserved: What `add` returned.

        Raises:
            ProvisionerError: It stays until it is over.
        """
        body = {"metadata": {"annotations": {reserved.annotation: None}}}
        self._transport.json(Call("patch", LEASES, self._namespace, _name(project, domain)), body=body)


def was_first(error: ProvisionerError) -> bool:
    """Whether another server was first.

    Args:
        error: What `Reservations.add` raised.
    """
    return error.reason in ("Conflict", "AlreadyExists")


def _name(project: str, domain: str) -> str:
    return dns_name("quota", project, domain)


def _is_ours(key: str) -> bool:
    return key.startswith(_ANNOTATION)


def taken_of(reserved: tuple[Reserved, ...]) -> dict[str, Consumption]:
    """What is reserved for each stack; where two servers make one, the larger.

    Args:
        reserved: All that counts.
    """
    found: dict[str, Consumption] = {}
    for item in reserved:
        known = found.get(item.stack, Consumption())
        found[item.stack] = Consumption(
            max(known.services, item.taken.services),
            max(known.replicas, item.taken.replicas),
            max(known.gpus, item.taken.gpus),
        )
    return found
