"""What an operation changes, as values: read from the engine's events, never from its printed text.

The engine tells each step twice: before it starts (the only telling in a
preview) and when it is done. A replacement is three steps (create the new one,
delete the old one, and the replacement itself); it is one change here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pulumi.automation import EngineEvent, OpType
from pulumi.automation.events import StepEventMetadata

STACK_TYPE = "pulumi:pulumi:Stack"
_PROVIDER_TYPE = "pulumi:providers:"

SECRET = "[secret]"  # noqa: S105 - what is shown instead of one
# Pulumi's `resource.SigKey` and `resource.SecretSig`: how a value says that it is encrypted.
_SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"
_SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a public constant

_OPERATIONS = {
    OpType.CREATE_REPLACEMENT: "replace",
    OpType.DELETE_REPLACED: "replace",
    OpType.READ_REPLACEMENT: "read",
    OpType.IMPORT_REPLACEMENT: "replace",
    OpType.DISCARD_REPLACED: "replace",
    OpType.REMOVE_PENDING_REPLACE: "replace",
    OpType.DISCARD: "delete",
    OpType.IMPORT: "create",
}
# When several steps tell of one resource, the strongest says what happens to it.
_STRENGTH = {"same": 0, "refresh": 1, "read": 2, "update": 3, "create": 4, "delete": 5, "replace": 6}


@dataclass(frozen=True)
class Change:
    """What happens to one resource.

    Attributes:
        urn: Its Pulumi URN.
        type: Its type token, for example `kubernetes:apps/v1:StatefulSet`.
        name: Its name.
        op: `create`, `update`, `replace`, `delete`, `same`, `read` or `refresh`.
        fields: Paths of the properties that differ, for example
            `spec.replicas`; sorted.
    """

    urn: str
    type: str
    name: str
    op: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        kind = self.type.rsplit(":", 1)[-1]
        shown = f" ({', '.join(self.fields)})" if self.fields else ""
        return f"{self.op} {kind} {self.name}{shown}"


@dataclass(frozen=True)
class ChangeSummary:
    """Everything one operation did, or would do, to the resources of a stack.

    The stack's own entry and the providers' are left out: they are Pulumi's
    bookkeeping.

    Attributes:
        changes: One per resource, in the order in which they began.
    """

    changes: tuple[Change, ...] = ()

    @property
    def changed(self) -> tuple[Change, ...]:
        """The changes that leave something different."""
        return tuple(change for change in self.changes if change.op not in {"same", "read", "refresh"})

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of resources per operation."""
        return MappingProxyType(dict(Counter(change.op for change in self.changes)))

    def __str__(self) -> str:
        if not self.changed:
            return "no change"
        return "; ".join(str(change) for change in self.changed)


@dataclass(frozen=True)
class UpResult:
    """What `Stack.up` did.

    Attributes:
        changes: Per resource.
        outputs: The stack's outputs; a secret one is `[secret]`.
    """

    changes: ChangeSummary
    outputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Diagnostic:
    """One message of the engine, a provider or the program.

    Attributes:
        severity: `info`, `info#err`, `warning` or `error`.
        message: Its text.
        urn: The resource that it is about, or "".
    """

    severity: str
    message: str
    urn: str = ""


def _steps(events: Iterable[EngineEvent]) -> Iterable[StepEventMetadata]:
    for event in events:
        if event.resource_pre_event is not None:
            yield event.resource_pre_event.metadata
        elif event.res_outputs_event is not None:
            yield event.res_outputs_event.metadata


def _fields(step: StepEventMetadata) -> set[str]:
    if step.detailed_diff:
        return set(step.detailed_diff)
    return set(step.diffs or ()) | set(step.keys or ())


def summarize(events: Iterable[EngineEvent]) -> ChangeSummary:
    """The changes that a stream of engine events tells of.

    Args:
        events: In order.
    """
    operations: dict[str, str] = {}
    fields: dict[str, set[str]] = {}
    types: dict[str, str] = {}
    for step in _steps(events):
        if step.type == STACK_TYPE or step.type.startswith(_PROVIDER_TYPE):
            continue
        op = _OPERATIONS.get(step.op, step.op.value)
        known = operations.get(step.urn, "same")
        operations[step.urn] = max(known, op, key=lambda name: _STRENGTH.get(name, 0))
        types[step.urn] = step.type
        fields.setdefault(step.urn, set()).update(_fields(step) if op in {"update", "replace"} else ())
    return ChangeSummary(
        tuple(
            Change(urn, types[urn], urn.rsplit("::", 1)[-1], op, tuple(sorted(fields[urn])))
            for urn, op in operations.items()
        )
    )


def outputs(events: Iterable[EngineEvent]) -> Mapping[str, Any]:
    """The stack's outputs that a stream of engine events tells of; a secret one is `[secret]`.

    Args:
        events: In order.
    """
    found: Mapping[str, Any] = {}
    for event in events:
        done = event.res_outputs_event
        if done is not None and done.metadata.type == STACK_TYPE and done.metadata.new is not None:
            found = done.metadata.new.outputs or {}
    return dict(masked(found))


def diagnostics(events: Iterable[EngineEvent]) -> tuple[Diagnostic, ...]:
    """The messages in a stream of engine events, without the ones that only serve a progress display.

    Args:
        events: In order.
    """
    return tuple(
        Diagnostic(
            event.diagnostic_event.severity, event.diagnostic_event.message.strip(), event.diagnostic_event.urn or ""
        )
        for event in events
        if event.diagnostic_event is not None
        and not event.diagnostic_event.ephemeral
        and event.diagnostic_event.severity != "debug"
    )


def masked(value: Any) -> Any:
    """A property value with `[secret]` in the place of each encrypted one.

    Args:
        value: As it stands in events and checkpoints.
    """
    if isinstance(value, Mapping):
        if value.get(_SIGNATURE_KEY) == _SECRET_SIGNATURE:
            return SECRET
        return {key: masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return value
