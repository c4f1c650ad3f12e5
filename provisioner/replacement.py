"""What a changed specification cannot change in place, and which data goes with what it removes.

Kubernetes refuses an update of these fields, so the StatefulSet has to be
deleted and made anew. That stops every replica, and the claims go with it
unless they are retained; nobody should learn of that afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.difference import differences
from provisioner.identity import Identity
from provisioner.spec import DataServiceSpec


@dataclass(frozen=True)
class Replacement:
    """One change that needs a new StatefulSet.

    Attributes:
        field: Path in the specification, for example `volumes[data].claim.size`.
        why: The rule, in one sentence.
    """

    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {self.why}"


@dataclass(frozen=True)
class LostVolume:
    """A claim that a change deletes, with the data in it.

    Attributes:
        claim: Its name.
        size: What it asked for, for example `10Gi`.
        why: Which rule deletes it.
    """

    claim: str
    size: str
    why: str

    def __str__(self) -> str:
        return f"{self.claim} ({self.size}): {self.why}"


def replacements(old: DataServiceSpec, new: DataServiceSpec) -> tuple[Replacement, ...]:
    """The changes that cannot be made in place.

    The rule is the API server's validation of a StatefulSet's update: of its
    spec only replicas, ordinals, template, updateStrategy, minReadySeconds,
    revisionHistoryLimit and persistentVolumeClaimRetentionPolicy may change.

    Args:
        old: What is there.
        new: What is wanted.
    """
    found = [
        Replacement(f"volumes{change.path}", "the claim templates of a StatefulSet cannot be changed")
        for change in differences(_claims(old), _claims(new))
    ]
    if old.pod_management_policy != new.pod_management_policy:
        found.append(Replacement("podManagementPolicy", "the policy of a StatefulSet cannot be changed"))
    return tuple(found)


def lost_volumes(identity: Identity, old: DataServiceSpec, new: DataServiceSpec) -> tuple[LostVolume, ...]:
    """The claims that an update from one specification to another deletes.

    Args:
        identity: The service.
        old: What is there.
        new: What is wanted.
    """
    if replacements(old, new):
        if old.volume_retention.when_deleted == "Retain":
            return ()
        return claims(identity, old, 0, "replaced with the StatefulSet, whenDeleted is Delete")
    if new.volume_retention.when_scaled == "Retain" or "replicas" in new.drift.ignore:
        return ()
    return claims(identity, old, new.replicas, f"scaled away ({old.replicas} -> {new.replicas}), whenScaled is Delete")


def claims(identity: Identity, spec: DataServiceSpec, first: int, why: str) -> tuple[LostVolume, ...]:
    """The claims of some replicas.

    Args:
        identity: The service.
        spec: What it is.
        first: Ordinal of the first replica that counts.
        why: Said of each.
    """
    return tuple(
        LostVolume(f"{volume.name}-{identity.service}-{ordinal}", volume.claim.size, why)
        for ordinal in range(first, spec.replicas)
        for volume in spec.volumes
        if volume.claim is not None
    )


def _claims(spec: DataServiceSpec) -> list[dict[str, object]]:
    return [
        {"name": volume.name, "claim": volume.claim.model_dump(mode="json", by_alias=True)}
        for volume in spec.volumes
        if volume.claim is not None
    ]
