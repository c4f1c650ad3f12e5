"""Find agents by a label on their Kubernetes Services.

So that whoever deploys an agent labels its Service and is done: nobody edits a
list in another team's configuration. Annotations say what a Service cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from provisioner.errors import TransientError, UsageError
from provisioner.registry.config import Deployment
from provisioner.registry.durations import parse_duration

log = structlog.get_logger(__name__)

PREFIX = "data-service-provisioner/"
"""Of the label and the annotations."""
DEFAULT_LABEL = f"{PREFIX}agent=true"
_PORT_NAMES = ("agent", "connector", "grpc", "agent-grpc", "connector-grpc")
_DEFAULT_PORT = 8000
_TIMEOUT = 10


@dataclass(frozen=True)
class ServiceFacts:
    """What of a Service matters here.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        annotations: Its annotations.
        ports: (name, application protocol, number) of each of its ports.
    """

    namespace: str
    name: str
    annotations: Mapping[str, str]
    ports: tuple[tuple[str, str, int], ...]


def port_of(facts: ServiceFacts) -> int:
    """The port that an agent listens on.

    The annotation `data-service-provisioner/port`, else the port named
    `agent`, `connector` or `grpc`, else one with the application protocol
    gRPC, else the only one, else 8000.

    Raises:
        ValueError: The annotation is no port.
    """
    wanted = facts.annotations.get(f"{PREFIX}port")
    if wanted is not None:
        if not wanted.isascii() or not wanted.isdigit() or not 0 < int(wanted) < 65536:
            raise ValueError(f"annotation {PREFIX}port must be a port, not {wanted!r}")
        return int(wanted)
    named = {name: number for name, _, number in facts.ports}
    for name in _PORT_NAMES:
        if name in named:
            return named[name]
    for _, protocol, number in facts.ports:
        if protocol.lower() in ("grpc", "kubernetes.io/h2c"):
            return number
    return facts.ports[0][2] if len(facts.ports) == 1 else _DEFAULT_PORT


def deployment_of(facts: ServiceFacts, cluster_domain: str) -> Deployment:
    """The agent deployment behind a Service.

    Annotations under `data-service-provisioner/`: `port`; `endpoint`, a gRPC
    target in place of the Service's own name; `insecure`, "false" for TLS
    (plain text is the default, as within a cluster it is usual); `timeout`, a
    duration, for every method.

    Args:
        facts: The Service.
        cluster_domain: Of the cluster's DNS, for example `cluster.local`.

    Raises:
        ValueError: An annotation is wrong; the message names it.
    """
    notes = facts.annotations
    endpoint = notes.get(f"{PREFIX}endpoint", "").strip()
    if not endpoint:
        endpoint = f"dns:///{facts.name}.{facts.namespace}.svc.{cluster_domain}:{port_of(facts)}"
    insecure = notes.get(f"{PREFIX}insecure", "true").lower()
    if insecure not in ("true", "false"):
        raise ValueError(f"annotation {PREFIX}insecure must be true or false, not {insecure!r}")
    timeout = notes.get(f"{PREFIX}timeout", "")
    try:
        seconds = parse_duration(timeout) if timeout else 0.0
    except ValueError as error:
        raise ValueError(f"annotation {PREFIX}timeout {error} (got {timeout!r})") from error
    return Deployment(
        id=f"{facts.namespace}/{facts.name}",
        endpoint=endpoint,
        insecure=insecure == "true",
        default_timeout=max(0.0, seconds),
    )


class ServiceDiscovery:
    """Looks labelled Services up at the API server.

    Args:
        label: A label selector, for example `data-service-provisioner/agent=true`.
        namespace: Look in this one only; in all when "".
        kubeconfig: File; else `$KUBECONFIG`, `~/.kube/config`, or the pod's
            service account.
        context: Context in the kubeconfig; else its current one.
        cluster_domain: Of the cluster's DNS.

    Raises:
        UsageError: There is no usable kubeconfig and no service account.
    """

    def __init__(
        self,
        *,
        label: str = DEFAULT_LABEL,
        namespace: str = "",
        kubeconfig: Path | None = None,
        context: str | None = None,
        cluster_domain: str = "cluster.local",
    ) -> None:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException

        settings = client.Configuration()
        try:
            try:
                config.load_kube_config(
                    config_file=str(kubeconfig) if kubeconfig else None, context=context, client_configuration=settings
                )
            except ConfigException:
                if kubeconfig or context:
                    raise
                config.load_incluster_config(client_configuration=settings)
        except ConfigException as error:
            raise UsageError(
                f"cannot reach a cluster for --discover: {error}",
                hint="set PROVISIONER_KUBECONFIG, or run in a pod with a service account",
            ) from error
        settings.retries = 0  # the next round is the retry
        self._core = client.CoreV1Api(client.ApiClient(settings))
        self._label = label
        self._namespace = namespace
        self._cluster_domain = cluster_domain
        self._complained: dict[str, str] = {}

    async def find(self) -> tuple[Deployment, ...]:
        """The agents there are now, sorted by namespace and name.

        Raises:
            TransientError: The API server does not answer, or refuses.
        """
        services = await asyncio.to_thread(self._list)
        found = []
        for service in sorted(services, key=lambda item: (item.namespace, item.name)):
            name = f"{service.namespace}/{service.name}"
            try:
                found.append(deployment_of(service, self._cluster_domain))
            except ValueError as error:
                if self._complained.get(name) != str(error):
                    log.warning("service is left out", service=name, problem=str(error))
                self._complained[name] = str(error)
            else:
                self._complained.pop(name, None)
        return tuple(found)

    def _list(self) -> list[ServiceFacts]:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            if self._namespace:
                answer = self._core.list_namespaced_service(
                    self._namespace, label_selector=self._label, _request_timeout=_TIMEOUT
                )
            else:
                answer = self._core.list_service_for_all_namespaces(
                    label_selector=self._label, _request_timeout=_TIMEOUT
                )
        except ApiException as error:
            where = f"in namespace {self._namespace}" if self._namespace else "in all namespaces"
            raise TransientError(
                f"cannot list services {where}: {error.status} {error.reason}",
                reason="DiscoveryFailed",
                hint="the service account needs the verb list on services" if error.status == 403 else "",
            ) from error
        except (HTTPError, OSError) as error:
            raise TransientError(f"the API server does not answer: {error}", reason="DiscoveryFailed") from error
        return [_facts(item) for item in answer.items]


def _facts(service: Any) -> ServiceFacts:
    ports = service.spec.ports or []
    return ServiceFacts(
        namespace=service.metadata.namespace,
        name=service.metadata.name,
        annotations=service.metadata.annotations or {},
        ports=tuple((port.name or "", port.app_protocol or "", port.port) for port in ports),
    )
