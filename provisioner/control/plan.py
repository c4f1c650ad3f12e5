"""What an apply would do, as a value: from the engine's preview and the rules of replacement.

The engine says what happens to each object and from what to what, since it
and its provider decide that. What it costs is said by the rules, and what
happens to secrets by their sealed values, since the engine rightly hides them.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.control.recorded import Recorded
from provisioner.control.request import ServiceRequest
from provisioner.difference import FieldChange, differences
from provisioner.engine import Change, ChangeSummary
from provisioner.identity import ANNOTATION_BACKEND, ANNOTATION_FIELD_MANAGER, ANNOTATION_SPEC_HASH, Identity
from provisioner.replacement import LostVolume, Replacement, lost_volumes, replacements
from provisioner.resources.pod import secrets

_KUBERNETES = "kubernetes:"
_KINDS = ("Service", "Secret", "StatefulSet", "PodDisruptionBudget")
_HIDDEN = "(secret)"
# What an apply writes for itself; nobody asked for it.
_BOOKKEEPING = (ANNOTATION_SPEC_HASH, ANNOTATION_BACKEND, ANNOTATION_FIELD_MANAGER)


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


def plan(record: Recorded | None, request: ServiceRequest, summary: ChangeSummary) -> Plan:
    """What an apply would do.

    Args:
        record: What was asked for before; None when there is nothing.
        request: What is asked for.
        summary: The engine's preview of it.
    """
    needed = replacements(record.spec, request.spec) if record is not None else ()
    hidden = _secret_changes(record, request)
    # The engine's order is that of its steps, which run side by side.
    changed = sorted((item for item in summary.changed if item.type.startswith(_KUBERNETES)), key=_order)
    return Plan(
        request.identity,
        tuple(_change(change, hidden, needed) for change in changed),
        needed,
        lost_volumes(request.identity, record.spec, request.spec) if record is not None else (),
        allowed=not needed or request.replace,
    )


def _secret_changes(record: Recorded | None, request: ServiceRequest) -> tuple[FieldChange, ...]:
    """The secrets that change: the engine masks them; sealed, equal values are seen to be equal."""
    old = secrets(record.spec) if record is not None else {}
    return tuple(
        FieldChange(change.steps, *(None if value is None else _HIDDEN for value in (change.old, change.new)))
        for change in differences({"data": old}, {"data": secrets(request.spec)})
    )


def _order(change: Change) -> tuple[int, str]:
    kind = _kind(change)
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind)


def _kind(change: Change) -> str:
    return change.type.rsplit(":", 1)[-1]


def _change(change: Change, hidden: tuple[FieldChange, ...], needed: tuple[Replacement, ...]) -> ObjectChange:
    kind = _kind(change)
    # A recreated service is destroyed and made anew; the engine alone would try to update what only the rules forbid.
    action = "replace" if needed and kind == "StatefulSet" and change.op == "update" else change.op
    if action not in ("update", "replace"):
        return ObjectChange(action, kind, change.name)
    told = tuple(
        found
        for found in differences(change.before, change.after)
        if found.steps[-1] not in _BOOKKEEPING and not (kind == "Secret" and found.steps[0] == "data")
    )
    fields = (*told, *hidden) if kind == "Secret" else told
    # What differs only by what another version of the program wrote.
    return ObjectChange(
        action, kind, change.name, fields or tuple(FieldChange((p,), None, None) for p in change.fields)
    )
