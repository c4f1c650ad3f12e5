"""What a data service consists of on Kubernetes, as pure functions of identity and specification.

The same input gives the same objects whoever runs the program: the connector,
the janitor, or `pulumi preview` by hand.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from provisioner.identity import (
    ANNOTATION_BACKEND,
    ANNOTATION_DELETION_POLICY,
    ANNOTATION_FIELD_MANAGER,
    ANNOTATION_OWNER,
    ANNOTATION_SPEC_HASH,
    ANNOTATION_START_DEADLINE,
    ANNOTATION_TTL,
    ANNOTATION_USERS,
    USERS_LEASE,
    Identity,
    Origin,
)
from provisioner.resources import pod
from provisioner.spec import DataServiceSpec, format_duration

# Readiness is judged from the shared watch, not by one watch of the whole
# namespace per provider process.
_SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}


def _annotations(identity: Identity, spec: DataServiceSpec) -> dict[str, str]:
    annotations = {
        **spec.annotations,
        **_SKIP_AWAIT,
        ANNOTATION_OWNER: ":".join((identity.project, identity.domain, identity.owner)),
        ANNOTATION_START_DEADLINE: format_duration(spec.start_deadline),
    }
    if spec.ttl is not None:
        annotations[ANNOTATION_TTL] = format_duration(spec.ttl)
    if spec.deletion_policy != "Delete":
        annotations[ANNOTATION_DELETION_POLICY] = spec.deletion_policy
    return annotations


def _metadata(identity: Identity, spec: DataServiceSpec) -> dict[str, Any]:
    return {
        "name": identity.service,
        "namespace": identity.namespace,
        "labels": {**spec.labels, **identity.labels()},
        "annotations": _annotations(identity, spec),
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
    claims = pod.claims(identity, spec)
    optional: dict[str, Any] = {}
    if claims:
        optional["volumeClaimTemplates"] = claims
        optional["persistentVolumeClaimRetentionPolicy"] = spec.volume_retention.model_dump(mode="json", by_alias=True)
    if spec.max_unavailable is not None:
        optional["updateStrategy"] = {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": spec.max_unavailable},
        }
    metadata = _metadata(identity, spec)
    # On this object alone: readiness reads it here, and the others need no update for what does not concern them.
    metadata["annotations"][ANNOTATION_SPEC_HASH] = spec.digest()
    return {
        "metadata": metadata,
        "spec": {
            "serviceName": identity.service,
            "replicas": spec.replicas,
            "podManagementPolicy": spec.pod_management_policy,
            "selector": {"matchLabels": identity.selector()},
            "template": pod.pod_template(identity, spec),
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


def secret_manifest(identity: Identity, spec: DataServiceSpec) -> dict[str, Any] | None:
    """The Secret with the values of the variables marked secret, or None when there are none.

    The values in it are sealed; who makes the object puts the opened ones in
    their place.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
    sealed = pod.secrets(spec)
    if not sealed:
        return None
    return {"metadata": _metadata(identity, spec), "type": "Opaque", "data": sealed}


def manifests(
    identity: Identity, spec: DataServiceSpec, secrets: Mapping[str, str], origin: Origin, *, shared: bool
) -> dict[str, dict[str, Any]]:
    """All objects of a service, whoever makes them, with what they say of themselves should their record be gone.

    Args:
        identity: Names and owner.
        spec: What the service is, each of its secrets sealed.
        secrets: The values of its secrets in clear, by variable.
        origin: Where it is recorded and runs.
        shared: Whether it belongs to its users together, who hold leases on it.

    Returns:
        Kind -> manifest, in the order in which they are made.
    """
    secret = secret_manifest(identity, spec)
    if secret is not None:
        secret["data"] = {name: base64.b64encode(secrets[name].encode()).decode() for name in secret["data"]}
    marks = {
        ANNOTATION_BACKEND: origin.backend,
        ANNOTATION_FIELD_MANAGER: origin.manager,
        ANNOTATION_USERS: USERS_LEASE if shared else "",
    }
    found = {
        "Service": service_manifest(identity, spec),
        "Secret": secret,
        "StatefulSet": stateful_set_manifest(identity, spec),
        "PodDisruptionBudget": disruption_budget_manifest(identity, spec),
    }
    made = {kind: manifest for kind, manifest in found.items() if manifest is not None}
    for manifest in made.values():
        manifest["metadata"]["annotations"] |= {name: value for name, value in marks.items() if value}
    return made


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
