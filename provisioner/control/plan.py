"""What an apply would do, as a value: from the engine's preview, the record and the manifests.

The engine says what happens to each object, since it and its provider decide
that. What the values are is read from the record and the new manifests, and
what it costs from the rules of replacement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.control.recorded import Recorded
from provisioner.control.request import ServiceRequest
from provisioner.difference import FieldChange, differences
from provisioner.engine import Change, ChangeSummary, Checkpoint
from provisioner.identity import ANNOTATION_BACKEND, ANNOTATION_SPEC_HASH, Identity
from provisioner.replacement import LostVolume, Replacement, lost_volumes, replacements
from provisioner.resources.manifests import (
    disruption_budget_manifest,
    secret_manifest,
    service_manifest,
    stateful_set_manifest,
)
from provisioner.spec import DataServiceSpec

_KUBERNETES = "kubernetes:"
_KINDS = ("Service", "Secret", "StatefulSet", "PodDisruptionBudget")
_HIDDEN = "(secret)"
# What an apply writes for itself; nobody asked for it.
_BOOKKEEPING = (ANNOTATION_SPEC_HASH, ANNOTATION_BACKEND)


@dataclass(frozen=True)
class ObjectChange:
    """What happens to one object.

    Attributes:
        action: `create`, `update`, `replace` or `delete`.
        kind: Its kind.
        name: Its name.
        fields: The fields that change, with their values.
    """

    action: str
    kind: str
    name: str
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What an apply of one service would do.

    Attributes:
        identity: The service.
        changes: Per object that would be changed.
        replacements: The changes for which the StatefulSet is made anew.
        lost: Volumes that would be deleted.
        allowed: Whether the request says that the service may be replaced.
    """

    identity: Identity
    changes: tuple[ObjectChange, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    lost: tuple[LostVolume, ...] = ()
    allowed: bool = True

    @property
    def changed(self) -> bool:
        """Whether anything would be."""
        return bool(self.changes)


def plan(
    record: Recorded | None, checkpoint: Checkpoint | None, request: ServiceRequest, summary: ChangeSummary
) -> Plan:
    """What an apply would do.

    Args:
        record: What was asked for before; None when there is nothing.
        checkpoint: The stack's; None when there is no stack.
        request: What is asked for.
        summary: The engine's preview of it.
    """
    old = {resource.urn: resource.inputs for resource in checkpoint.objects} if checkpoint is not None else {}
    new = manifests(request.identity, request.spec)
    # The engine masks what is in a Secret; sealed, equal values are seen to be equal.
    sealed = secret_manifest(request.identity, record.spec) if record is not None else None
    needed = replacements(record.spec, request.spec) if record is not None else ()
    # The engine's order is that of its steps, which run side by side.
    changed = sorted((item for item in summary.changed if item.type.startswith(_KUBERNETES)), key=_order)
    return Plan(
        request.identity,
        tuple(
            _change(
                change,
                (sealed or {}) if _kind(change) == "Secret" else old.get(change.urn, {}),
                new.get(_kind(change), {}),
                needed,
            )
            for change in changed
        ),
        needed,
        lost_volumes(request.identity, record.spec, request.spec) if record is not None else (),
        allowed=not needed or request.replace,
    )


def manifests(identity: Identity, spec: DataServiceSpec) -> dict[str, Mapping[str, Any]]:
    """The manifests of a service, by kind.

    Args:
        identity: Names and owner.
        spec: What the service is.
    """
    made = {
        "Service": service_manifest(identity, spec),
        "Secret": secret_manifest(identity, spec),
        "StatefulSet": stateful_set_manifest(identity, spec),
        "PodDisruptionBudget": disruption_budget_manifest(identity, spec),
    }
    return {kind: manifest for kind, manifest in made.items() if manifest is not None}


def _order(change: Change) -> tuple[int, str]:
    kind = _kind(change)
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind)


def _kind(change: Change) -> str:
    return change.type.rsplit(":", 1)[-1]


def _change(
    change: Change, old: Mapping[str, Any], new: Mapping[str, Any], needed: tuple[Replacement, ...]
) -> ObjectChange:
    kind = _kind(change)
    # A recreated service is destroyed and made anew; the engine alone would try to update what only the rules forbid.
    action = "replace" if needed and kind == "StatefulSet" and change.op == "update" else change.op
    if action not in ("update", "replace"):
        return ObjectChange(action, kind, change.name)
    told = tuple(
        _hidden(found) if kind == "Secret" and found.steps[0] == "data" else found
        for found in differences(_stated(old), _stated(new))
        if found.steps[-1] not in _BOOKKEEPING
    )
    # What the engine saw and the manifests do not show: a default that another version of the program wrote.
    fields = told or tuple(FieldChange((path,), None, None) for path in change.fields)
    return ObjectChange(action, kind, change.name, fields)


def _stated(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}


def _hidden(change: FieldChange) -> FieldChange:
    return FieldChange(change.steps, *(None if value is None else _HIDDEN for value in (change.old, change.new)))
