"""EndpointSlices: the addresses that the pods behind a Service have at this moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.cluster.api import ENDPOINT_SLICES, Call
from provisioner.cluster.parse import items, mapping, number, text
from provisioner.cluster.transport import Transport

# Kubernetes' own label, which names the Service that a slice belongs to.
_SERVICE_LABEL = "kubernetes.io/service-name"


def pod_addresses(slices: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """The addresses in some EndpointSlices.

    Args:
        slices: From the API server.

    Returns:
        (pod name, port name) -> `address:port`; the first where a pod has
        addresses of two families.
    """
    found: dict[tuple[str, str], str] = {}
    for piece in slices:
        form = "[{}]:{}" if text(piece, "addressType") == "IPv6" else "{}:{}"
        for endpoint in items(piece, "endpoints"):
            addresses = endpoint.get("addresses") or []
            target = mapping(endpoint, "targetRef")
            if not addresses or text(target, "kind") != "Pod":
                continue
            for port in items(piece, "ports"):
                key = text(target, "name"), text(port, "name")
                found.setdefault(key, form.format(addresses[0], number(port, "port")))
    return found


def of_service(transport: Transport, namespace: str, service: str) -> dict[tuple[str, str], str]:
    """The addresses of the pods behind a Service, as `pod_addresses` gives them.

    Args:
        transport: Calls the API server.
        namespace: The Service's namespace.
        service: Its name.

    Raises:
        ProvisionerError: The API server cannot be asked, or refuses.
    """
    call = Call("list", ENDPOINT_SLICES, namespace)
    answer = transport.json(call, query={"labelSelector": f"{_SERVICE_LABEL}={service}"})
    return pod_addresses(items(answer, "items"))
