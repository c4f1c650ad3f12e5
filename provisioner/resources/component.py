"""The Pulumi component: a headless Service, a StatefulSet, and a Secret and a budget if asked for.

The component's own inputs hold identity and specification, so the checkpoint
says what was wanted before any child exists.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pulumi

from provisioner.identity import Identity
from provisioner.resources.manifests import (
    disruption_budget_manifest,
    outputs,
    secret_manifest,
    service_manifest,
    stateful_set_manifest,
)
from provisioner.sealing import Sealer
from provisioner.spec import DataServiceSpec

COMPONENT_TYPE = "data-service:index:DataService"
_CONTAINER = "spec.template.spec.containers[0]"
# What is left to somebody else once it exists: specification's field -> property of the StatefulSet.
IGNORED = {"replicas": "spec.replicas", "image": f"{_CONTAINER}.image", "resources": f"{_CONTAINER}.resources"}


class DataService(pulumi.ComponentResource):
    """One data service as a Pulumi component.

    Args:
        identity: Names and owner.
        spec: What the service is, each of its secrets sealed.
        secrets: The values of its secrets in clear, by variable.
        opts: Pulumi's resource options.
    """

    def __init__(
        self,
        identity: Identity,
        spec: DataServiceSpec,
        secrets: Mapping[str, str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        inputs: Mapping[str, Any] = {"identity": asdict(identity), "spec": json.loads(spec.canonical_json())}
        super().__init__(COMPONENT_TYPE, identity.service, dict(inputs), opts)
        # By name: pulumi_kubernetes loads its modules lazily, and not safely from several threads.
        from pulumi_kubernetes.apps.v1 import StatefulSet
        from pulumi_kubernetes.core.v1 import Secret, Service
        from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

        child = pulumi.ResourceOptions(parent=self)
        before: list[pulumi.Resource] = [Service(identity.service, opts=child, **service_manifest(identity, spec))]
        secret = secret_manifest(identity, spec)
        if secret is not None:
            data = {name: _encoded(secrets[name]) for name in secret["data"]}
            before.append(Secret(identity.service, opts=child, **{**secret, "data": pulumi.Output.secret(data)}))
        StatefulSet(
            identity.service,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=before, ignore_changes=[IGNORED[field] for field in spec.drift.ignore]
            ),
            **stateful_set_manifest(identity, spec),
        )
        budget = disruption_budget_manifest(identity, spec)
        if budget is not None:
            PodDisruptionBudget(identity.service, opts=child, **budget)
        self.register_outputs(outputs(identity, spec))


def _encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def program(identity: Identity, spec: DataServiceSpec, sealer: Sealer) -> Callable[[], None]:
    """The inline program of one service's stack.

    Args:
        identity: Names and owner.
        spec: What the service is, each of its secrets sealed.
        sealer: Opens its secrets.

    Returns:
        A function for the Automation API: it registers the component and
        exports the stack's outputs.

    Raises:
        PermanentError: A secret cannot be opened.
    """
    secrets = sealer.opened(spec, identity.stack)

    def run() -> None:
        DataService(identity, spec, secrets)
        for name, value in outputs(identity, spec).items():
            pulumi.export(name, value)

    return run
