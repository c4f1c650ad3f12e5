"""The Pulumi component: a headless Service, a StatefulSet, and a Secret and a budget if asked for.

The component's own inputs hold identity and specification, so the checkpoint
says what was wanted before any child exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pulumi

from provisioner.identity import UNKNOWN_ORIGIN, Identity, Origin
from provisioner.resources.manifests import manifests, outputs
from provisioner.sealing import Sealer
from provisioner.spec import DataServiceSpec

COMPONENT_TYPE = "data-service:index:DataService"
_CONTAINER = "spec.template.spec.containers[0]"
# What is left to somebody else once it exists: specification's field -> property of the StatefulSet.
IGNORED = {"replicas": "spec.replicas", "image": f"{_CONTAINER}.image", "resources": f"{_CONTAINER}.resources"}


def component_inputs(identity: Identity, spec: DataServiceSpec, origin: Origin, *, shared: bool) -> dict[str, Any]:
    """What the checkpoint says was wanted.

    Args:
        identity: Names and owner.
        spec: What the service is, each of its secrets sealed.
        origin: Where it is recorded and runs.
        shared: Whether it belongs to its users together, who hold leases on it.
    """
    inputs: dict[str, Any] = {"identity": asdict(identity), "spec": json.loads(spec.canonical_json())}
    if origin.cluster:
        inputs["cluster"] = origin.cluster
    if shared:
        inputs["shared"] = True
    return inputs


class DataService(pulumi.ComponentResource):
    """One data service as a Pulumi component.

    Args:
        identity: Names and owner.
        spec: What the service is, each of its secrets sealed.
        secrets: The values of its secrets in clear, by variable.
        opts: Pulumi's resource options.
        origin: Where it is recorded and runs.
        shared: Whether it belongs to its users together, who hold leases on it.

    Attributes:
        outputs: What it tells its users. Each resolves when every object is as
            it was asked for, so none of them is recorded by an operation that failed.
    """

    def __init__(
        self,
        identity: Identity,
        spec: DataServiceSpec,
        secrets: Mapping[str, str],
        opts: pulumi.ResourceOptions | None = None,
        origin: Origin = UNKNOWN_ORIGIN,
        shared: bool = False,
    ) -> None:
        inputs = component_inputs(identity, spec, origin, shared=shared)
        super().__init__(COMPONENT_TYPE, identity.service, inputs, opts)
        # By name: pulumi_kubernetes loads its modules lazily, and not safely from several threads.
        from pulumi_kubernetes.apps.v1 import StatefulSet
        from pulumi_kubernetes.core.v1 import Secret, Service
        from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

        wanted = manifests(identity, spec, secrets, origin, shared=shared)
        child = pulumi.ResourceOptions(parent=self)
        made: list[pulumi.Resource] = [Service(identity.service, opts=child, **wanted["Service"])]
        if (secret := wanted.get("Secret")) is not None:
            made.append(
                Secret(identity.service, opts=child, **{**secret, "data": pulumi.Output.secret(secret["data"])})
            )
        statefulset = StatefulSet(
            identity.service,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[*made], ignore_changes=[IGNORED[field] for field in spec.drift.ignore]
            ),
            **wanted["StatefulSet"],
        )
        made.append(statefulset)
        if (budget := wanted.get("PodDisruptionBudget")) is not None:
            made.append(PodDisruptionBudget(identity.service, opts=child, **budget))
        self.outputs = {name: _after(made, value) for name, value in outputs(identity, spec).items()}
        self.register_outputs(self.outputs)


def _after(made: Sequence[pulumi.Resource], value: Any) -> pulumi.Output[Any]:
    """A value that is known when each of some resources is made; when one fails, it never is."""
    return pulumi.Output.all(value, *(resource.urn for resource in made)).apply(lambda found: found[0])


def program(
    identity: Identity,
    spec: DataServiceSpec,
    sealer: Sealer,
    origin: Origin = UNKNOWN_ORIGIN,
    *,
    shared: bool = False,
) -> Callable[[], None]:
    """The inline program of one service's stack.

    Args:
        identity: Names and owner.
        spec: What the service is, each of its secrets sealed.
        sealer: Opens its secrets.
        origin: Where it is recorded and runs.
        shared: Whether it belongs to its users together, who hold leases on it.

    Returns:
        A function for the Automation API: it registers the component and
        exports the stack's outputs.

    Raises:
        PermanentError: A secret cannot be opened.
    """
    secrets = sealer.opened(spec, identity.stack)

    def run() -> None:
        service = DataService(identity, spec, secrets, origin=origin, shared=shared)
        for name, value in service.outputs.items():
            pulumi.export(name, value)

    return run
