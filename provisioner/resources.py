"""The Pulumi component: what a data service consists of on Kubernetes.

The manifests are pure functions of identity and specification, so the same
input gives the same objects whoever runs the program: the connector, the
janitor, or `pulumi preview` by hand. The component's own inputs hold both, so
the checkpoint can say what was wanted before any child exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pulumi

from provisioner.identity import (
    ANNOTATION_OWNER,
    ANNOTATION_SPEC_HASH,
    ANNOTATION_START_DEADLINE,
    ANNOTATION_TTL,
    Identity,
)
from provisioner.spec import DataServiceSpec, EnvFrom, Probe, format_duration

COMPONENT_TYPE = "data-service:index:DataService"
CONTAINER = "data-service"
# Readiness is judged from the shared watch, not by one watch of the whole
# namespace per provider process.
_SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}


def _annotations(identity: Identity, spec: DataServiceSpec) -> dict[str, str]:
    annotations = {
        **spec.annotations,
        **_SKIP_AWAIT,
        ANNOTATION_SPEC_HASH: spec.digest(),
        ANNOTATION_OWNER: ":".join((identity.project, identity.domain, identity.owner)),
        ANNOTATION_START_DEADLINE: format_duration(spec.start_deadline),
    }
    if spec.ttl is not None:
        annotations[ANNOTATION_TTL] = format_duration(spec.ttl)
    return annotations


def _metadata(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    return {
        "name": identity.service,
        "namespace": identity.namespace,
        "labels": {**spec.labels, **identity.labels()},
        "annotations": _annotations(identity, spec),
    }


def _literal(value: str) -> str:
    # `$(NAME)` would be expanded by kubelet; `$$` is its escape for `$`.
    return value.replace("$(", "$$(")


def _env(identity: Identity, spec: DataServiceSpec) -> list[dict[str, Any]]:
    # Sorted, since a mapping that travelled through protobuf has lost its order.
    variables: list[dict[str, Any]] = [
        {"name": "DATA_SERVICE_NAME", "value": identity.service},
        {
            "name": "DATA_SERVICE_REPLICA",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}},
        },
    ]
    variables = [variable for variable in variables if variable["name"] not in spec.env]
    for name, value in sorted(spec.env.items()):
        if isinstance(value, EnvFrom):
            reference = {"name": value.secret_key_ref.name, "key": value.secret_key_ref.key}
            variables.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
        else:
            variables.append({"name": name, "value": _literal(value)})
    return variables


def _readiness_probe(spec: DataServiceSpec) -> dict[str, Any] | None:
    if spec.readiness_probe is not None:
        return _probe(spec.readiness_probe)
    first = spec.ports[0]
    # A process that does not listen yet is not ready; nothing can be asked of UDP.
    return {"tcpSocket": {"port": first.name}, "periodSeconds": 2} if first.protocol == "TCP" else None


def _probe(probe: Probe) -> dict[str, Any]:
    return probe.model_dump(mode="json", by_alias=True, exclude_none=True)


def _container(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    optional = {
        "imagePullPolicy": spec.image_pull_policy,
        "command": list(spec.command),
        "args": list(spec.args),
        "resources": {
            key: dict(sorted(values.items()))
            for key, values in (("requests", spec.resources.requests), ("limits", spec.resources.limits))
            if values
        },
        "readinessProbe": _readiness_probe(spec),
        "livenessProbe": _probe(spec.liveness_probe) if spec.liveness_probe else None,
        "startupProbe": _probe(spec.startup_probe) if spec.startup_probe else None,
        "volumeMounts": [
            {
                "name": volume.name,
                "mountPath": volume.mount_path,
                **({"readOnly": True} if volume.read_only else {}),
            }
            for volume in spec.volumes
        ],
    }
    return {
        "name": CONTAINER,
        "image": spec.image,
        "env": _env(identity, spec),
        "ports": [{"name": port.name, "containerPort": port.port, "protocol": port.protocol} for port in spec.ports],
        # The last lines of the log explain a crash even when the log itself cannot be read.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **{key: value for key, value in optional.items() if value},
    }


def _affinity(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    wanted = spec.affinity
    node: dict[str, Any] = {}
    if wanted.node_required:
        terms = [term.model_dump(mode="json", by_alias=True) for term in wanted.node_required]
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if wanted.node_preferred:
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [
            term.model_dump(mode="json", by_alias=True) for term in wanted.node_preferred
        ]
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": identity.selector()}}
    replicas: dict[str, Any] = {}
    if wanted.replicas_apart == "Required":
        replicas["requiredDuringSchedulingIgnoredDuringExecution"] = [apart]
    elif wanted.replicas_apart == "Preferred":
        preferred = [{"weight": 100, "podAffinityTerm": apart}]
        replicas["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {key: value for key, value in (("nodeAffinity", node), ("podAntiAffinity", replicas)) if value}


def _empty_dirs(spec: DataServiceSpec) -> list[dict[str, Any]]:
    return [
        {
            "name": volume.name,
            "emptyDir": volume.empty_dir.model_dump(
                mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
            ),
        }
        for volume in spec.volumes
        if volume.empty_dir is not None
    ]


def _claims(identity: Identity, spec: DataServiceSpec) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": volume.name, "labels": identity.labels()},
            "spec": {
                "accessModes": [volume.claim.access_mode],
                "resources": {"requests": {"storage": volume.claim.size}},
                **({"storageClassName": volume.claim.storage_class} if volume.claim.storage_class else {}),
            },
        }
        for volume in spec.volumes
        if volume.claim is not None
    ]


def _pod_spec(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    optional = {
        "nodeSelector": dict(sorted(spec.node_selector.items())),
        "tolerations": [
            toleration.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
            | {"operator": toleration.operator}
            for toleration in spec.tolerations
        ],
        "affinity": _affinity(identity, spec),
        "topologySpreadConstraints": [
            {
                **spread.model_dump(mode="json", by_alias=True),
                "labelSelector": {"matchLabels": identity.selector()},
            }
            for spread in spec.topology_spread
        ],
        "volumes": _empty_dirs(spec),
        "serviceAccountName": spec.service_account,
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
    }
    return {
        "containers": [_container(identity, spec)],
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        # One variable per Service of the namespace would slow every start of a large fleet.
        "enableServiceLinks": False,
        # A shard needs no access to the API server unless it was given an account of its own.
        "automountServiceAccountToken": spec.service_account is not None,
        **{key: value for key, value in optional.items() if value},
    }


def service_manifest(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    """The headless Service, by which each replica has a DNS name of its own.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
    return {
        "metadata": _metadata(identity, spec),
        "spec": {
            "clusterIP": "None",
            # Shards find each other while they start; readiness is asked elsewhere.
            "publishNotReadyAddresses": True,
            "selector": identity.selector(),
            "ports": [
                {"name": port.name, "port": port.port, "targetPort": port.name, "protocol": port.protocol}
                for port in spec.ports
            ],
        },
    }


def stateful_set_manifest(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    """The StatefulSet with one pod per replica.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
    claims = _claims(identity, spec)
    optional: dict[str, Any] = {}
    if claims:
        optional["volumeClaimTemplates"] = claims
        optional["persistentVolumeClaimRetentionPolicy"] = spec.volume_retention.model_dump(mode="json", by_alias=True)
    if spec.max_unavailable is not None:
        optional["updateStrategy"] = {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": spec.max_unavailable},
        }
    return {
        "metadata": _metadata(identity, spec),
        "spec": {
            "serviceName": identity.service,
            "replicas": spec.replicas,
            "podManagementPolicy": spec.pod_management_policy,
            "selector": {"matchLabels": identity.selector()},
            "template": {
                # No spec hash here: a change of the replica count must not restart the pods.
                "metadata": {
                    "labels": {**spec.labels, **identity.labels()},
                    **({"annotations": dict(spec.annotations)} if spec.annotations else {}),
                },
                "spec": _pod_spec(identity, spec),
            },
            **optional,
        },
    }


def disruption_budget_manifest(identity: Identity, spec: DataServiceSpec) -> dict[str, Any] | None:
    """The PodDisruptionBudget, or None when the specification asks for none.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
    if spec.disruption_budget is None:
        return None
    bound = spec.disruption_budget.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        "metadata": _metadata(identity, spec),
        "spec": {"selector": {"matchLabels": identity.selector()}, **bound},
    }


def outputs(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    """What the stack tells its users: names, ports and the endpoint of each replica.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
    return {
        "name": identity.service,
        "namespace": identity.namespace,
        "dnsName": identity.dns_name(),
        "ports": {port.name: port.port for port in spec.ports},
        "endpoints": [
            f"{identity.replica_host(ordinal)}:{port.port}" for ordinal in range(spec.replicas) for port in spec.ports
        ],
        "specHash": spec.digest(),
    }


class DataService(pulumi.ComponentResource):
    """One data service as a Pulumi component: a headless Service, a StatefulSet, and a budget if asked for.

    Args:
        identity: Names and owner.
        spec: What the service is.
        opts: Pulumi's resource options.
    """

    def __init__(self, identity: Identity, spec: DataServiceSpec, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs: Mapping[str, Any] = {"identity": asdict(identity), "spec": json.loads(spec.canonical_json())}
        super().__init__(COMPONENT_TYPE, identity.service, dict(inputs), opts)
        # By name: pulumi_kubernetes loads its modules lazily, and not safely from several threads.
        from pulumi_kubernetes.apps.v1 import StatefulSet
        from pulumi_kubernetes.core.v1 import Service
        from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

        child = pulumi.ResourceOptions(parent=self)
        service = Service(identity.service, opts=child, **service_manifest(identity, spec))
        StatefulSet(
            identity.service,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[service]),
            **stateful_set_manifest(identity, spec),
        )
        budget = disruption_budget_manifest(identity, spec)
        if budget is not None:
            PodDisruptionBudget(identity.service, opts=child, **budget)
        self.register_outputs(outputs(identity, spec))


def program(identity: Identity, spec: DataServiceSpec) -> Callable[[], None]:
    """The inline program of one service's stack.

    Args:
        identity: Names and owner.
        spec: What the service is.

    Returns:
        A function for the Automation API: it registers the component and
        exports the stack's outputs.
    """

    def run() -> None:
        DataService(identity, spec)
        for name, value in outputs(identity, spec).items():
            pulumi.export(name, value)

    return run
