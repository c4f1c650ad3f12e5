"""Reach the replicas of a service from where this process runs: a pod of the cluster, or somewhere else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from provisioner import settings
from provisioner.control.status import Endpoint
from provisioner.errors import TransientError

if TYPE_CHECKING:
    from provisioner.flyte.service import DataService

_ROUND_SECONDS = 0.2
# A firewall that drops packets answers nothing; a later round tries again.
_CONNECT_SECONDS = 3.0
_AT_ONCE = 32


def in_cluster() -> bool:
    """Whether this process runs in a pod, where the cluster's names mean something."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def addresses(service: DataService, endpoints: Sequence[Endpoint]) -> dict[Endpoint, str]:
    """`host:port` of each endpoint, as this process reaches it.

    Args:
        service: Whose endpoints.
        endpoints: Some of them.

    Raises:
        TransientError: One has no address now.
        ProvisionerError: The cluster cannot be asked.
    """
    if in_cluster():
        return {endpoint: str(endpoint) for endpoint in endpoints}
    # Not needed in a pod, where it may have no kubeconfig.
    from provisioner.cluster import slices
    from provisioner.cluster.transport import Transport

    found = slices.of_service(Transport(settings.load()), service.namespace, service.name)
    result = {}
    for endpoint in endpoints:
        pod = endpoint.host.partition(".")[0]
        address = found.get((pod, endpoint.name))
        if address is None:
            raise TransientError(
                f"replica {endpoint.replica} of {service.name} has no address now: no EndpointSlice of the Service "
                f"names pod {pod} with port {endpoint.name}",
                reason="NoAddress",
                hint=_look(service),
            )
        result[endpoint] = address
    return result


def wait(service: DataService, endpoints: Sequence[Endpoint], timeout: float) -> None:
    """Wait until a TCP connection to each endpoint is accepted.

    Args:
        service: Whose endpoints.
        endpoints: Some of them.
        timeout: Seconds to wait at most.

    Raises:
        TransientError: Not all were reached in time.
        ProvisionerError: The cluster cannot be asked.
    """
    deadline = time.monotonic() + timeout
    waiting = list(endpoints)
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="reach") as pool:
        while waiting:
            failure = ""
            try:
                tried = addresses(service, waiting)
            except TransientError as error:
                failure = error.message
            else:
                answers = dict(zip(tried, pool.map(_refusal, tried.values()), strict=True))
                waiting = [endpoint for endpoint in waiting if answers[endpoint]]
                failure = f"{tried[waiting[0]]}: {answers[waiting[0]]}" if waiting else ""
            if waiting and time.monotonic() > deadline:
                raise TransientError(
                    f"{len(waiting)} of {len(endpoints)} endpoints of {service.name} cannot be reached after "
                    f"{timeout:g} s, such as {failure}",
                    reason="Unreachable",
                    hint=_look(service),
                )
            if waiting:
                time.sleep(_ROUND_SECONDS)


def _refusal(address: str) -> str:
    """Why a connection is not accepted, or ""."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return ""


def _look(service: DataService) -> str:
    status = f"see `provisioner status {service.stack or service.name}`"
    if in_cluster():
        return f"{status}, and whether a NetworkPolicy is in the way"
    return f"{status}, and whether this machine has a route to the cluster's pods"
