"""The configuration of a data service task, as a workflow's author writes it.

The fields are those of `provisioner.spec.DataServiceSpec`, by the same names
and with the same meaning, so that there is one description of them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from provisioner.errors import Problem, SpecError
from provisioner.flyte import community
from provisioner.spec import EnvFrom, Port, Probe, ResourceRequirements, Toleration
from provisioner.spec.container import EnvSecret
from provisioner.spec.lifecycle import Drift
from provisioner.spec.scheduling import Affinity, TopologySpread
from provisioner.spec.storage import DisruptionBudget, Volume, VolumeRetention

# What belongs to the task and not to the service's specification.
_OF_THE_TASK = ("name", "existing_release_name", "shared", "cluster")

# A part written as a mapping, for one that holds a template, which its own type would refuse.
Part = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataServiceConfig:
    """Which service a `DataServiceTask` provides.

    Every field but the first four is one of `DataServiceSpec`. None, the
    default of all, means that field's own default. With the community plugin's
    names (`Image=`, `Port=`, ...) it gives that plugin's configuration.

    Any value may be a template, `"{{.inputs.shards}}"`, for an input of the
    task; a part that holds one is written as a mapping:
    `ports=[{"name": "main", "port": "{{.inputs.port}}"}]`.

    Attributes:
        name: Readable part of the service's name; each execution adds its own.
        existing_release_name: Name of a service that exists already. The task
            waits until it is ready, and never changes or removes it; while it
            is used, nobody else's end removes it either.
        shared: Whether all executions of the project and domain use one
            service of this very `name`. The first makes it, and it goes with
            the last that uses it. Call `release` when you need it no more.
        cluster: Accepted for workflows of the community plugin; it changes nothing.

    Example:
        >>> DataServiceConfig(image="localhost/store:1", ports=[Port(name="main", port=9000)], replicas=3).custom()
        {'spec': {'image': 'localhost/store:1', 'ports': [{'name': 'main', 'port': 9000}], 'replicas': 3}}
    """

    name: str | None = None
    existing_release_name: str | None = None
    shared: bool | None = None
    cluster: str | None = None
    image: str | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: Sequence[str] | None = None
    command: Sequence[str] | str | None = None
    args: Sequence[str] | str | None = None
    env: Mapping[str, str | EnvFrom | Part] | str | None = None
    ports: Sequence[Port | Part] | str | None = None
    replicas: int | str | None = None
    resources: ResourceRequirements | Part | None = None
    readiness_probe: Probe | Part | None = None
    liveness_probe: Probe | Part | None = None
    startup_probe: Probe | Part | None = None
    node_selector: Mapping[str, str] | str | None = None
    tolerations: Sequence[Toleration | Part] | str | None = None
    affinity: Affinity | Part | None = None
    topology_spread: Sequence[TopologySpread | Part] | None = None
    volumes: Sequence[Volume | Part] | None = None
    volume_retention: VolumeRetention | Part | None = None
    disruption_budget: DisruptionBudget | Part | None = None
    max_unavailable: int | str | None = None
    service_account: str | None = None
    labels: Mapping[str, str] | str | None = None
    annotations: Mapping[str, str] | str | None = None
    pod_management_policy: Literal["Parallel", "OrderedReady"] | None = None
    termination_grace_period_seconds: int | str | None = None
    start_deadline: str | float | None = None
    ttl: str | float | None = None
    deletion_policy: Literal["Delete", "Retain"] | None = None
    drift: Drift | Part | None = None

    def __new__(cls, **fields: Any) -> Any:
        """Accept the community plugin's names as well."""
        if community.FIELDS.isdisjoint(fields):
            return super().__new__(cls)
        return community.DataServiceConfig(**fields)

    def custom(self) -> dict[str, Any]:
        """The `custom` field of the task template.

        Raises:
            SpecError: A secret stands in it. Flyte keeps task templates in
                clear, and shows them to everybody who may see the project.
        """
        variables = self.env if isinstance(self.env, Mapping) else {}
        secrets = [name for name, value in variables.items() if _is_secret(value)]
        if secrets:
            accepted = (
                "a reference to a Secret of the cluster (EnvFrom): Flyte stores and shows task templates in clear"
            )
            raise SpecError([Problem(f"env.{name}", "", accepted) for name in secrets], source="DataServiceConfig")
        given = {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None
        }
        custom = {to_camel(name): given.pop(name) for name in _OF_THE_TASK if name in given}
        if given:
            custom["spec"] = {to_camel(name): value for name, value in given.items()}
        return custom


def _is_secret(value: Any) -> bool:
    return isinstance(value, EnvSecret) or (isinstance(value, Mapping) and bool({"secret", "sealed"} & set(value)))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
