"""What the replicas keep on disk, and how many of them may be away at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from provisioner.spec.base import Broken, DNSLabel, DNSSubdomain, Model, integral
from provisioner.spec.quantity import Quantity


def _mount_path(value: str) -> str:
    if not value.startswith("/") or ":" in value or "/../" in f"{value}/":
        raise ValueError("an absolute path without ':' and '..'")
    return value


def _share(value: Any) -> int | str:
    number = integral(value)
    if isinstance(number, int) and number >= 0:
        return number
    if isinstance(number, str) and re.fullmatch(r"(100|[0-9]{1,2})%", number):
        return number
    raise ValueError("a number of replicas, or a share such as 25%")


Share = Annotated[int | str, PlainValidator(_share, json_schema_input_type=int | str)]


class ClaimTemplate(Model):
    """A volume of its own for each replica."""

    size: Quantity = Field(description="requested size, such as 10Gi")
    storage_class: DNSSubdomain | None = Field(
        default=None, description="StorageClass; the cluster's default when none"
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany"] = Field(
        default="ReadWriteOnce", description="how it may be mounted"
    )


class EmptyDir(Model):
    """Scratch space that lives as long as the pod."""

    medium: Literal["", "Memory"] = Field(default="", description="node's disk, or memory")
    size_limit: Quantity | None = Field(default=None, description="size from which the pod is evicted")


class Volume(Model):
    """A volume and where it is mounted: exactly one of claim and emptyDir."""

    name: DNSLabel = Field(description="name, unique in this service")
    mount_path: Annotated[str, AfterValidator(_mount_path)] = Field(description="absolute path in the container")
    read_only: bool = Field(default=False, description="mount it without the right to write")
    claim: ClaimTemplate | None = Field(default=None, description="a volume of its own for each replica")
    empty_dir: EmptyDir | None = Field(default=None, description="scratch space")

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:
        """Exactly one source."""
        if not wrong & {"claim", "emptyDir"} and (self.claim is None) == (self.empty_dir is None):
            yield Broken((), "exactly one of claim and emptyDir")


class VolumeRetention(Model):
    """What becomes of the claims' data."""

    when_deleted: Literal["Delete", "Retain"] = Field(default="Delete", description="when the service is deleted")
    when_scaled: Literal["Delete", "Retain"] = Field(default="Delete", description="when a replica is scaled away")


class DisruptionBudget(Model):
    """How many replicas a drain or an eviction may take at once: exactly one bound."""

    min_available: Share | None = Field(default=None, description="replicas that must stay")
    max_unavailable: Share | None = Field(default=None, description="replicas that may be away")

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:
        """Exactly one bound."""
        if not wrong and (self.min_available is None) == (self.max_unavailable is None):
            yield Broken((), "exactly one of minAvailable and maxUnavailable")
