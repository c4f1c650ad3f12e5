"""From a checkpoint to the few facts that a decision needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from provisioner.engine import Checkpoint
from provisioner.identity import Identity
from provisioner.janitor.facts import CheckpointFacts
from provisioner.spec import DataServiceSpec, parse_duration

_BOOKKEEPING = ("pulumi:pulumi:", "pulumi:providers:")
_START_DEADLINE = DataServiceSpec.model_fields["start_deadline"].default


def facts_of(checkpoint: Checkpoint, *, destroy_failed: bool) -> CheckpointFacts:
    """What matters of a checkpoint; a part that is not as expected counts as not recorded.

    Args:
        checkpoint: As the backend has it.
        destroy_failed: Whether the last operation was a destroy that failed.
    """
    inputs = checkpoint.component_inputs
    identity = _identity(inputs.get("identity"))
    spec = inputs.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    cluster = inputs.get("cluster")
    made = [item for item in checkpoint.resources if not item.type.startswith(_BOOKKEEPING)]
    pending = [item for item in checkpoint.pending_operations if not item.resource.type.startswith(_BOOKKEEPING)]
    return CheckpointFacts(
        identity=identity,
        ttl=_duration(spec.get("ttl")),
        start_deadline=(_duration(spec.get("startDeadline")) or _START_DEADLINE) if identity is not None else None,
        retain=spec.get("deletionPolicy") == "Retain",
        cluster=cluster if isinstance(cluster, str) else "",
        applied="specHash" in checkpoint.outputs,
        resources=len(made) + len(pending),
        objects=len(checkpoint.objects) + len(pending),
        uids=frozenset(uid for item in checkpoint.objects if (uid := _uid(item.outputs))),
        deleting=destroy_failed or any(item.kind == "deleting" for item in pending),
        protected=_protected(checkpoint),
    )


def _identity(document: Any) -> Identity | None:
    if not isinstance(document, Mapping):
        return None
    values = {field.name: document.get(field.name) for field in fields(Identity)}
    if not all(isinstance(value, str) for value in values.values()):
        return None
    return Identity(**{name: str(value) for name, value in values.items()})


def _duration(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_duration(value)
    except ValueError:
        return None


def _uid(outputs: Mapping[str, Any]) -> str:
    metadata = outputs.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) else ""


def _protected(checkpoint: Checkpoint) -> tuple[str, ...]:
    resources = checkpoint.deployment.get("resources") or ()
    return tuple(str(item.get("urn", "")).rsplit("::", 1)[-1] for item in resources if item.get("protect") is True)
