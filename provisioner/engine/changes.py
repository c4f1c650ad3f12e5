"""What an operation changes, as values: read from the engine's events, never from its printed text.

The engine tells each step twice: before it starts (the only telling in a
preview) and when it is done. A replacement is three steps (create the new one,
delete the old one, and the replacement itself); it is one change here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_REPLACEMENT = frozenset({OpType.REPLACE, OpType.CREATE_REPLACEMENT, OpType.IMPORT_REPLACEMENT})
_OPERATIONS = {
    OpType.DELETE_REPLACED: "delete",
    OpType.DISCARD_REPLACED: "delete",
    OpType.REMOVE_PENDING_REPLACE: "delete",
    OpType.READ_REPLACEMENT: "read",
    OpType.DISCARD: "delete",
    OpType.IMPORT: "create",
}
# When several steps tell of one resource, the strongest says what happens to it.
_STRENGTH = {"same": 0, "refresh": 1, "read": 2, "update": 3, "create": 4, "delete": 5, "replace": 6}
# What the engine says in addition to each real error.
_ECHO = re.compile(
    r"(update|preview|destroy|refresh) (failed|cancell?ed)"
    r"|an unhandled error occurred: the program was stopped: .*",
    re.DOTALL,
)
# How the API server refuses the dry run of a create while the object to be replaced is still there.
_STILL_THERE = re.compile(r"is invalid: .*(Forbidden: updates to|field is immutable)", re.DOTALL)


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
        before: What was asked for, as the provider normalized it; a secret
            is `[secret]`. Empty for what is created.
        after: What is asked for now, likewise. Empty for what is deleted.
    """

    urn: str
    type: str
    name: str
    op: str
    fields: tuple[str, ...] = ()
    before: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    after: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

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
    told = set(step.diffs or ()) | set(step.keys or ())
    if told or step.old is None or step.new is None:
        return told
    # Of a component no provider says what differs.
    return set(_differences(step.old.inputs or {}, step.new.inputs or {}))


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, f"{path}[{index}]")
    elif old != new:
        yield path


def _inputs(state: Any) -> Mapping[str, Any]:
    return masked(state.inputs) if state is not None and isinstance(state.inputs, Mapping) else {}


def summarize(events: Iterable[EngineEvent]) -> ChangeSummary:
    """The changes that a stream of engine events tells of.

    Args:
        events: In order.
    """
    operations: dict[str, str] = {}
    fields: dict[str, set[str]] = {}
    types: dict[str, str] = {}
    before: dict[str, Mapping[str, Any]] = {}
    after: dict[str, Mapping[str, Any]] = {}
    for step in _steps(events):
        if step.type == STACK_TYPE or step.type.startswith(_PROVIDER_TYPE):
            continue
        op = "replace" if step.op in _REPLACEMENT else _OPERATIONS.get(step.op, step.op.value)
        known = operations.get(step.urn, "same")
        operations[step.urn] = max(known, op, key=lambda name: _STRENGTH.get(name, 0))
        types[step.urn] = step.type
        fields.setdefault(step.urn, set()).update(_fields(step) if op in {"update", "replace"} else ())
        before[step.urn] = _inputs(step.old) or before.get(step.urn, {})
        after[step.urn] = _inputs(step.new) or after.get(step.urn, {})
    return ChangeSummary(
        tuple(
            Change(urn, types[urn], urn.rsplit("::", 1)[-1], op, tuple(sorted(fields[urn])), before[urn], after[urn])
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


def on_their_way_out(events: Iterable[EngineEvent]) -> tuple[str, ...]:
    """The objects that a stack was brought up with although they are being deleted.

    The API server lets such an object be changed, and takes it away afterwards.

    Args:
        events: Of an update that succeeded.

    Returns:
        For example `StatefulSet graph`.
    """
    found = []
    for event in events:
        done = event.res_outputs_event
        if done is None or done.metadata.new is None or done.metadata.op in {OpType.DELETE, OpType.DELETE_REPLACED}:
            continue
        metadata = (done.metadata.new.outputs or {}).get("metadata")
        if isinstance(metadata, Mapping) and metadata.get("deletionTimestamp"):
            found.append(_shown(done.metadata.urn))
    return tuple(found)


def still_in_the_way(events: Sequence[EngineEvent]) -> tuple[str, ...]:
    """The objects that are to be replaced and whose old ones made an operation fail, if nothing else did.

    In a preview the old object is always there: the provider tries each create
    on the API server, without effect, and nothing was deleted before. In an
    update it is on its way out.

    Args:
        events: Of an operation that failed.

    Returns:
        For example `StatefulSet graph`; empty if anything else was wrong.
    """
    replaced = {step.urn for step in _steps(events) if step.op in _REPLACEMENT}
    errors = [item for item in diagnostics(events) if item.severity == "error" and not is_echo(item.message)]
    if not all(item.urn in replaced and _STILL_THERE.search(item.message) for item in errors):
        return ()
    return tuple(_shown(item.urn) for item in errors)


def _shown(urn: str) -> str:
    # urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME
    return f"{urn.split('::')[2].rsplit(':', 1)[-1]} {urn.rsplit('::', 1)[-1]}"


def is_echo(message: str) -> bool:
    """Whether a message only repeats that something failed.

    Args:
        message: Of an error.
    """
    return _ECHO.fullmatch(message) is not None


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
