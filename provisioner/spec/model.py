"""The specification of one data service, as a frozen value.

Field names and their meaning are Kubernetes' own; the rules are those of its
API validation, so that what is accepted here is accepted there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from provisioner.spec.base import WHOLE, Broken, DNSSubdomain, EnvName, Image, LabelKey, LabelValue, Model
from provisioner.spec.container import EnvSecret, EnvValue, Port, Probe, ResourceRequirements
from provisioner.spec.duration import Duration
from provisioner.spec.lifecycle import Drift
from provisioner.spec.scheduling import Affinity, Toleration, TopologySpread
from provisioner.spec.storage import DisruptionBudget, Share, Volume, VolumeRetention

# Kubernetes' IsConfigMapKey: what a key of a Secret may be.
_SECRET_KEY = re.compile(r"(?!\.$)[-._A-Za-z0-9]{1,253}")


def _unlike(items: Sequence[Any], field: str, key: str, value: Callable[[Any], object]) -> Iterator[Broken]:
    """Items that repeat what an earlier one has."""
    seen: set[object] = set()
    for index, item in enumerate(items):
        if value(item) in seen:
            yield Broken((field, index, key), f"different from that of the other {field}")
        seen.add(value(item))


class DataServiceSpec(Model):
    """One data service: replicas of one container behind a headless Service.

    Example:
        >>> DataServiceSpec(image="localhost/store:1", ports=[Port(name="grpc", port=9000)], replicas=3).replicas
        3
    """

    image: Image = Field(description="container image")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="when kubelet pulls; Kubernetes' own default when none"
    )
    image_pull_secrets: tuple[DNSSubdomain, ...] = Field(default=(), description="names of Secrets with credentials")
    command: tuple[str, ...] = Field(default=(), description="replaces the image's entry point")
    args: tuple[str, ...] = Field(default=(), description="replaces the image's arguments")
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="environment variables")
    ports: tuple[Port, ...] = Field(min_length=1, max_length=64, description="named ports of each replica")
    replicas: Annotated[int, Field(ge=0, le=10_000), WHOLE] = Field(
        default=1, description="number of replicas (shards); 0 pauses the service"
    )
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="requests and limits of each replica"
    )
    readiness_probe: Probe | None = Field(
        default=None, description="decides when a replica is ready; a TCP connection to the first port when none"
    )
    liveness_probe: Probe | None = Field(default=None, description="restarts a replica that fails it")
    startup_probe: Probe | None = Field(default=None, description="holds the other probes back until it succeeds")
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="labels a node must have")
    tolerations: tuple[Toleration, ...] = Field(default=(), description="taints that are tolerated")
    affinity: Affinity = Field(default_factory=Affinity, description="nodes and neighbours needed or preferred")
    topology_spread: tuple[TopologySpread, ...] = Field(default=(), description="even spread over groups of nodes")
    volumes: tuple[Volume, ...] = Field(default=(), description="volumes and where they are mounted")
    volume_retention: VolumeRetention = Field(
        default_factory=VolumeRetention, description="what becomes of the claims' data"
    )
    disruption_budget: DisruptionBudget | None = Field(
        default=None, description="how many replicas a drain may take at once; any number when none"
    )
    max_unavailable: Share | None = Field(
        default=None, description="replicas that an update replaces at once; one when none"
    )
    service_account: DNSSubdomain | None = Field(default=None, description="service account of the pods")
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="more labels of all objects")
    annotations: dict[LabelKey, str] = Field(default_factory=dict, description="more annotations of all objects")
    pod_management_policy: Literal["Parallel", "OrderedReady"] = Field(
        default="Parallel", description="start all replicas at once, or one after another"
    )
    termination_grace_period_seconds: Annotated[int, Field(ge=0, le=3600), WHOLE] = Field(
        default=30, description="seconds between SIGTERM and SIGKILL of a replica"
    )
    start_deadline: Duration = Field(
        default=1800,
        description="time for all replicas to be ready, else it has failed",
        json_schema_extra={"default": "30m"},
    )
    ttl: Duration | None = Field(default=None, description="lifetime, after which it is destroyed; none: its owner's")
    deletion_policy: Literal["Delete", "Retain"] = Field(
        default="Delete",
        description="what becomes of it when its owner has ended; Retain keeps it until its ttl or a deletion",
    )
    drift: Drift = Field(default_factory=Drift, description="what is done about changes that others make")

    stand_ins: ClassVar[Mapping[str, Any]] = {"image": "stand-in", "ports": ({"name": "stand-in", "port": 1},)}

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:
        """Names that differ, probes of declared ports, an update that can begin."""
        yield from _unlike(self.ports, "ports", "name", lambda port: port.name)
        yield from _unlike(self.ports, "ports", "port", lambda port: (port.port, port.protocol))
        yield from _unlike(self.volumes, "volumes", "name", lambda volume: volume.name)
        yield from _unlike(self.volumes, "volumes", "mountPath", lambda volume: volume.mount_path)
        for name, value in self.env.items():
            # The variable's name is the key in the Secret (Kubernetes' IsConfigMapKey).
            if isinstance(value, EnvSecret) and (_SECRET_KEY.fullmatch(name) is None or name.startswith("..")):
                yield Broken(("env", name), "called with letters, digits, '-', '_' and '.' to hold a secret")
        yield from self._probe_rules(known="ports" not in wrong)
        if self.max_unavailable in (0, "0%"):
            yield Broken(("maxUnavailable",), "at least 1, else no update could begin")

    def _probe_rules(self, *, known: bool) -> Iterator[Broken]:
        names = [port.name for port in self.ports]
        declared = {*names, *(port.port for port in self.ports if port.protocol == "TCP")}
        for field in ("readiness_probe", "liveness_probe", "startup_probe"):
            probe: Probe | None = getattr(self, field)
            if probe is None:
                continue
            if known and probe.port is not None and probe.port not in declared:
                place = (to_camel(field), "httpGet" if probe.http_get else "tcpSocket", "port")
                yield Broken(place, f"a declared port ({', '.join(names)}), not {probe.port!r}")
            if field != "readiness_probe" and probe.success_threshold != 1:
                yield Broken((to_camel(field), "successThreshold"), "1, Kubernetes accepts no other")

    def document(self) -> dict[str, Any]:
        """The specification as plain data, without what has its default value."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def canonical_json(self) -> str:
        """The one way to write this specification: equal values give equal text."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def digest(self) -> str:
        """A hash of the canonical JSON: 16 hexadecimal digits."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]
