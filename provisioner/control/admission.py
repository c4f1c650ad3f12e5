"""Whether a request may be carried out, and how: a decision from what is recorded and what is found."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from provisioner.cluster import ForeignObject
from provisioner.cluster.live import KeptClaim
from provisioner.control.recorded import Recorded
from provisioner.control.request import ServiceRequest
from provisioner.errors import RefusedError
from provisioner.replacement import lost_volumes, replacements
from provisioner.spec import DataServiceSpec

REFUSALS = frozenset({"NotOurs", "OldVolumes", "OtherCluster", "ReplacementNeeded"})
"""Reasons of the errors of this module: the request is well formed, and must not be carried out."""
_SHOWN = 5


class Way(StrEnum):
    """How a request is carried out."""

    UPDATE = "update"
    RECREATE = "recreate"


def way(record: Recorded | None, request: ServiceRequest) -> Way:
    """How a request is carried out.

    Args:
        record: What was asked for before; None when there is nothing.
        request: What is asked for now.

    Raises:
        RefusedError: It cannot be done in place, and the request does not say
            that the service may be replaced.
    """
    reasons = replacements(record.spec, request.spec) if record is not None else ()
    if record is None or not reasons:
        return Way.UPDATE
    if request.replace:
        return Way.RECREATE
    lost = [volume.claim for volume in lost_volumes(request.identity, record.spec, request.spec)]
    price = f"; with it would go the volumes {_some(lost)}" if lost else "; its volumes would be kept"
    raise RefusedError(
        f"service {request.identity.service} would have to be replaced: {'; '.join(map(str, reasons))}{price}",
        reason="ReplacementNeeded",
        hint="undo these changes, or allow it: `provisioner apply --replace`",
    )


def check_cluster(service: str, known: str, cluster: str) -> None:
    """Refuse to take one cluster for another: what is recorded would be lost track of.

    Args:
        service: Name of the service.
        known: Uid of the kube-system namespace of its cluster, or "".
        cluster: That of the cluster that we talk to, or "".

    Raises:
        RefusedError: They differ.
    """
    if known and cluster and known != cluster:
        raise RefusedError(
            f"service {service} is in another cluster (kube-system {known}, not {cluster})",
            reason="OtherCluster",
            hint=f"choose its context (PROVISIONER_CONTEXT); if that cluster is gone: `provisioner forget {service}`",
        )


def check_names(foreign: Sequence[ForeignObject]) -> None:
    """Refuse to touch what belongs to somebody else.

    Args:
        foreign: Objects that have the service's names and not its label.

    Raises:
        RefusedError: There is one.
    """
    if foreign:
        first = foreign[0]
        raise RefusedError(
            f"{first.kind} {first.namespace}/{first.name} exists and belongs to {first.owner}",
            reason="NotOurs",
            hint="give the service another name, or remove that object if nobody needs it",
        )


def check_claims(claims: Sequence[KeptClaim], spec: DataServiceSpec, request: ServiceRequest) -> None:
    """Refuse to show the data of an earlier service to a new one, unless that is what its retention is for.

    Args:
        claims: Claims that carry the label of a service that does not exist.
        spec: What is wanted.
        request: What is asked for.

    Raises:
        RefusedError: There is old data that nobody asked for.
    """
    mounted = {
        f"{volume.name}-{request.identity.service}-{ordinal}"
        for volume in spec.volumes
        if volume.claim is not None
        for ordinal in range(spec.replicas)
    }
    old = [claim.name for claim in claims if claim.name in mounted and not claim.going]
    if old and spec.volume_retention.when_deleted == "Delete" and not request.replace:
        name = request.identity.service
        raise RefusedError(
            f"volumes of an earlier service {name} still exist, and a new one would see their data: {_some(old)}",
            reason="OldVolumes",
            hint=f"delete them: `provisioner delete {name} --volumes`; or use them: `whenDeleted: Retain`",
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
