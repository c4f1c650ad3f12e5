"""What a workflow gets from a data service task: a value that the next task takes as its input.

Flyte carries it as MessagePack, so it holds plain fields alone, and a
workflow can pass on a part of it (`graph.dns_name`) before it exists.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.control.status import Endpoint


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

    Example:
        >>> graph = DataService("g", "ns", "g.ns.svc", "g", {"main": 1}, [Endpoint(0, "g-0.g.ns.svc", 1, "main")])
        >>> graph.addresses()
        ['g-0.g.ns.svc:1']
    """

    name: str
    namespace: str
    dns_name: str
    stack: str
    ports: dict[str, int]
    endpoints: list[Endpoint]

    def addresses(self, port: str | None = None) -> list[str]:
        """`host:port` of each replica, in the order of the replicas.

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
        return [str(endpoint) for endpoint in self.endpoints if port in (None, endpoint.name)]
