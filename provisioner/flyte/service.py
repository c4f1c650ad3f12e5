"""What a workflow gets from a data service task: a value that the next task takes as its input.

Flyte carries it as MessagePack, so it holds plain fields alone, and a
workflow can pass on a part of it (`graph.dns_name`) before it exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.control.status import Endpoint
from provisioner.errors import PermanentError

ENV_PREFIX = "DATA_SERVICE"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True)
class DataService:
    """One data service whose replicas are all ready.

    Attributes:
        name: Name of its StatefulSet and of its headless Service.
        namespace: Kubernetes namespace of both.
        dns_name: DNS name of the Service: an address for each replica.
        stack: Name of its Pulumi stack, or "" when it was made by somebody else.
        ports: Port name -> port number.
        endpoints: Every port of every replica.
        targets: Port name -> `host:port` of each replica, separated by
            commas; made from the endpoints. A workflow passes one on
            (`graph.targets["grpc"]`) to a container task, whose arguments
            take text alone.

    Example:
        >>> graph = DataService("g", "ns", "g.ns.svc", "g", {"main": 1}, [Endpoint(0, "g-0.g.ns.svc", 1, "main")])
        >>> graph.dns_addresses()
        ['g-0.g.ns.svc:1']
    """

    name: str
    namespace: str
    dns_name: str
    stack: str
    ports: dict[str, int]
    endpoints: list[Endpoint]
    targets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.targets:
            object.__setattr__(self, "targets", {port: ",".join(self.dns_addresses(port)) for port in self.ports})

    def of_port(self, port: str | None = None) -> list[Endpoint]:
        """One endpoint of each replica, in the order of the replicas.

        Args:
            port: Name of the port; may be left out when there is just one.

        Raises:
            ValueError: There is no such port, or several and none is named.
        """
        known = ", ".join(sorted(self.ports))
        if port is None and len(self.ports) != 1:
            raise ValueError(f"{self.name} has several ports: name one of {known}")
        if port is not None and port not in self.ports:
            raise ValueError(f"{self.name} has no port {port!r}; it has {known}")
        return [endpoint for endpoint in self.endpoints if port in (None, endpoint.name)]

    def dns_addresses(self, port: str | None = None) -> list[str]:
        """`host:port` of each replica by its DNS name, which holds in the pods of the cluster.

        Args:
            port: Name of the port; may be left out when there is just one.

        Raises:
            ValueError: There is no such port, or several and none is named.
        """
        return [str(endpoint) for endpoint in self.of_port(port)]

    def addresses(self, port: str | None = None) -> list[str]:
        """`host:port` of each replica, as this process reaches it, in the order of the replicas.

        In a pod that is its DNS name, which stays when the replica's pod is
        replaced. Elsewhere, as in a local run, the name means nothing: it is
        the pod's own address at this moment, from the Service's
        EndpointSlices, in the cluster that the settings name.

        Args:
            port: Name of the port; may be left out when there is just one.

        Raises:
            ValueError: There is no such port, or several and none is named.
            ProvisionerError: Outside of a pod: the cluster cannot be asked, or
                a replica has no address now.
        """
        from provisioner.flyte import reach

        return list(reach.addresses(self, self.of_port(port)).values())

    def wait_until_reachable(self, timeout: float = 300.0, port: str | None = None) -> DataService:
        """Wait until each replica accepts a TCP connection from here.

        The service was ready when its task succeeded. Since then a replica
        may have been moved, and a name that was looked up too early may be
        remembered as unknown for some seconds.

        Args:
            timeout: Seconds to wait at most.
            port: Name of the one port to try, for example when another does
                not speak TCP; all of them when none is named.

        Returns:
            The service itself.

        Raises:
            ValueError: There is no such port.
            TransientError: Not all were reached in time; names one, and why.
            ProvisionerError: Outside of a pod: the cluster cannot be asked.

        Example:
            >>> train(graph.wait_until_reachable().addresses())  # doctest: +SKIP
        """
        from provisioner.flyte import reach

        reach.wait(self, self.of_port(port) if port else self.endpoints, timeout)
        return self

    def env(self, prefix: str = ENV_PREFIX) -> dict[str, str]:
        """The service as environment variables, for containers that do not read a task's inputs.

        With the default prefix: `DATA_SERVICE_NAME`, `_NAMESPACE`, `_HOST`
        (the DNS name), `_STACK`, `_REPLICAS`, `_PORTS` (`grpc=9000,http=9001`),
        `_ADDRESSES_GRPC` for each port (`host:port,host:port`, by DNS names),
        and `_ADDRESSES` when there is just one port.

        Args:
            prefix: What each name begins with; give each of two services its own.

        Raises:
            ValueError: The prefix cannot begin a variable's name.

        Example:
            >>> graph = DataService("g", "ns", "g.ns.svc", "", {"main": 1}, [Endpoint(0, "g-0.g.ns.svc", 1, "main")])
            >>> graph.env("GRAPH")["GRAPH_ADDRESSES"]
            'g-0.g.ns.svc:1'
        """
        if not _VARIABLE.fullmatch(prefix):
            raise ValueError(f"a prefix is made of A-Z, 0-9 and _, and {prefix!r} is not")
        replicas = {endpoint.replica for endpoint in self.endpoints}
        values = {
            "NAME": self.name,
            "NAMESPACE": self.namespace,
            "HOST": self.dns_name,
            "STACK": self.stack,
            "REPLICAS": str(len(replicas)),
            "PORTS": ",".join(f"{name}={number}" for name, number in self.ports.items()),
        }
        values |= {f"ADDRESSES_{_upper(port)}": ",".join(self.dns_addresses(port)) for port in self.ports}
        if len(self.ports) == 1:
            values["ADDRESSES"] = ",".join(self.dns_addresses())
        return {f"{prefix}_{name}": value for name, value in values.items()}

    @classmethod
    def from_env(cls, prefix: str = ENV_PREFIX, environ: Mapping[str, str] | None = None) -> DataService:
        """Read what `env` wrote, in the container that got it.

        Args:
            prefix: The one that `env` was given.
            environ: The variables; this process's own when None.

        Raises:
            PermanentError: A variable is missing, or is not what `env` writes.
        """
        found = os.environ if environ is None else environ
        try:
            name, namespace, host, stack = (found[f"{prefix}_{key}"] for key in ("NAME", "NAMESPACE", "HOST", "STACK"))
            pairs = (pair.rpartition("=") for pair in found[f"{prefix}_PORTS"].split(","))
            ports = {port: int(number) for port, _, number in pairs}
            lists = {port: found[f"{prefix}_ADDRESSES_{_upper(port)}"].split(",") for port in ports}
            rows = zip(*(_hosts(lists[port]) for port in ports), strict=True)
            endpoints = [
                Endpoint(replica, address, number, port)
                for replica, hosts in enumerate(rows)
                for (port, number), address in zip(ports.items(), hosts, strict=True)
            ]
        except KeyError as error:
            raise PermanentError(
                f"the variable {error.args[0]} is not set",
                reason="NoDataService",
                hint="give the container the variables of DataService.env()",
            ) from error
        except ValueError as error:
            raise PermanentError(
                f"the variables {prefix}_* are not what DataService.env() writes: {error}", reason="NoDataService"
            ) from error
        return cls(name, namespace, host, stack, ports, endpoints)


def _upper(port: str) -> str:
    return port.upper().replace("-", "_")


def _hosts(addresses: list[str]) -> list[str]:
    return [address.rpartition(":")[0] for address in addresses if address]
