"""The specification of one data service, as a frozen value.

Field names and their meaning are Kubernetes' own; the rules are those of its
API validation, so that what is accepted here is accepted there.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from provisioner.spec.base import DNSSubdomain, EnvName, Image, Integer, LabelKey, LabelValue, Model
from provisioner.spec.container import EnvValue, Port, Probe, ResourceRequirements
from provisioner.spec.duration import Duration
from provisioner.spec.scheduling import Affinity, Toleration, TopologySpread
from provisioner.spec.storage import DisruptionBudget, Share, Volume, VolumeRetention


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
    replicas: Annotated[Integer, Field(ge=0, le=10_000)] = Field(
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
    termination_grace_period_seconds: Annotated[Integer, Field(ge=0, le=3600)] = Field(
        default=30, description="seconds between SIGTERM and SIGKILL of a replica"
    )
    start_deadline: Duration = Field(default=1800, description="time for all replicas to be ready, else it has failed")
    ttl: Duration | None = Field(default=None, description="lifetime, after which it is destroyed; none: its owner's")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_volumes()
        names = [port.name for port in self.ports]
        if len(set(names)) != len(names):
            raise ValueError("ports: names that differ from each other")
        numbers = [(port.port, port.protocol) for port in self.ports]
        if len(set(numbers)) != len(numbers):
            raise ValueError("ports: numbers that differ from each other within a protocol")
        declared = {*names, *(port.port for port in self.ports if port.protocol == "TCP")}
        for field in ("readiness_probe", "liveness_probe", "startup_probe"):
            probe: Probe | None = getattr(self, field)
            if probe is None:
                continue
            if probe.port is not None and probe.port not in declared:
                known = ", ".join(names)
                raise ValueError(f"{to_camel(field)}: a declared port ({known}), not {probe.port!r}")
            if field != "readiness_probe" and probe.success_threshold != 1:
                raise ValueError(f"{to_camel(field)}.successThreshold: 1, Kubernetes accepts no other")
        return self

    def _check_volumes(self) -> None:
        for field in ("name", "mount_path"):
            values = [getattr(volume, field) for volume in self.volumes]
            if len(set(values)) != len(values):
                raise ValueError(f"volumes: a {to_camel(field)} each that differs from the others")
        if self.max_unavailable in (0, "0%"):
            raise ValueError("maxUnavailable: at least 1, else no update could begin")

    def document(self) -> dict[str, Any]:
        """The specification as plain data, without what has its default value."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def canonical_json(self) -> str:
        """The one way to write this specification: equal values give equal text."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def digest(self) -> str:
        """A hash of the canonical JSON: 16 hexadecimal digits."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]
