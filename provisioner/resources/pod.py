"""The pod of a replica: its container, where it runs, what it mounts."""

from __future__ import annotations

from typing import Any

from provisioner.identity import ANNOTATION_SECRET_HASH, Identity, short_hash
from provisioner.spec import DataServiceSpec, EnvFrom, EnvSecret, Probe

CONTAINER = "data-service"


def secrets(spec: DataServiceSpec) -> dict[str, str]:
    """The variables with a secret of the service's own: name -> sealed value, sorted.

    Args:
        spec: What the service is; each of its secrets is sealed.
    """
    return {
        name: value.sealed
        for name, value in sorted(spec.env.items())
        if isinstance(value, EnvSecret) and value.sealed is not None
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
        elif isinstance(value, EnvSecret):
            own = {"name": identity.service, "key": name}
            variables.append({"name": name, "valueFrom": {"secretKeyRef": own}})
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


def claims(identity: Identity, spec: DataServiceSpec) -> list[dict[str, Any]]:
    """The claim templates of the StatefulSet.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
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


def pod_template(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    """The template of the StatefulSet's pods.

    No hash of the specification is in it: a change of the replica count must
    not restart the pods. A change of a secret must, so that the replicas read it.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
    sealed = secrets(spec)
    annotations = {**spec.annotations, **({ANNOTATION_SECRET_HASH: short_hash(*sealed.values())} if sealed else {})}
    return {
        "metadata": {
            "labels": {**spec.labels, **identity.labels()},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": _pod_spec(identity, spec),
    }


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
