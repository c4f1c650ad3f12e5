"""What others changed: the live objects against what the last apply left, field by field.

An apply records each object as the API server answered it, defaults and all.
So nothing has to be known of Kubernetes' defaults here, and a field that
somebody added shows as well as one that somebody changed. Who did it stands in
the object's own `managedFields`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.difference import FieldChange, differences
from provisioner.engine import Resource
from provisioner.resources.component import IGNORED
from provisioner.spec import DataServiceSpec

# Written by the API server and the controllers in the course of any object's life.
_VOLATILE = frozenset({"resourceVersion", "generation", "managedFields", "creationTimestamp", "selfLink"})
# Of no concern, or compared in another way; what begins with two underscores is the provider's own.
_SEPARATE = frozenset({"status", "metadata", "data", "stringData"})
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HIDDEN = "(secret)"


@dataclass(frozen=True)
class Drifted:
    """One thing that is not as it was applied.

    Attributes:
        kind: Kind of the object.
        name: Its name.
        path: The field, or "" when the object itself is gone.
        applied: The value that was applied; None when there was none.
        found: The value that is there; None when there is none.
        manager: Who wrote it, as far as the object tells.
        ignored: Whether the specification leaves this field to others.
    """

    kind: str
    name: str
    path: str
    applied: Any
    found: Any
    manager: str = ""
    ignored: bool = False


def compare(
    resource: Resource, live: Mapping[str, Any] | None, spec: DataServiceSpec, secrets: Mapping[str, str]
) -> tuple[Drifted, ...]:
    """The differences of one object.

    Args:
        resource: As the checkpoint has it.
        live: As it is now; None when it is gone.
        spec: Says what is left to others.
        secrets: The values of the service's secrets in clear, by variable.

    Returns:
        Nothing that shows a secret's value.
    """
    kind = resource.type.rsplit(":", 1)[-1]
    if live is None:
        return (Drifted(kind, resource.name, "", "applied", None),)
    if kind == "Secret":
        changes = (*differences(_significant(resource.outputs), _significant(live)), *_secret_changes(secrets, live))
    else:
        changes = differences(_significant(resource.outputs), _significant(live))
    return tuple(
        Drifted(
            kind,
            resource.name,
            change.path,
            change.old,
            change.new,
            manager(live, change.steps),
            kind == "StatefulSet" and _is_ignored(change, spec),
        )
        for change in changes
    )


def _significant(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in (document.get("metadata") or {}).items() if key not in _VOLATILE}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != _LAST_APPLIED}
    inner = {key: value for key, value in document.items() if key not in _SEPARATE and not key.startswith("__")}
    return {"metadata": {**metadata, "annotations": annotations}, **inner}


def _secret_changes(secrets: Mapping[str, str], live: Mapping[str, Any]) -> Iterator[FieldChange]:
    wanted = {name: base64.b64encode(value.encode()).decode() for name, value in secrets.items()}
    found = live.get("data") or {}
    for change in differences({"data": wanted}, {"data": found}):
        shown = (None if value is None else _HIDDEN for value in (change.old, change.new))
        yield FieldChange(change.steps, *shown)


def _is_ignored(change: FieldChange, spec: DataServiceSpec) -> bool:
    # In the engine's own way of writing a path, in which the one container is the first.
    path = change.path.replace("containers[data-service]", "containers[0]")
    return any(
        path == IGNORED[field] or path.startswith((f"{IGNORED[field]}.", f"{IGNORED[field]}["))
        for field in spec.drift.ignore
    )


def manager(live: Mapping[str, Any], steps: Iterable[str]) -> str:
    """Who wrote a field last, by the object's `managedFields`.

    Args:
        live: The whole object.
        steps: The way to the field.

    Returns:
        The name of the field manager, or "" when none claims it: for a field
        that was removed nobody does.
    """
    entries = [entry for entry in (live.get("metadata") or {}).get("managedFields") or () if isinstance(entry, Mapping)]
    owners = [entry for entry in entries if _owns(entry.get("fieldsV1"), tuple(steps))]
    newest = max(owners, key=lambda entry: str(entry.get("time", "")), default=None)
    if newest is None:
        return ""
    subresource = newest.get("subresource")
    return f"{newest.get('manager', '')}" + (f" ({subresource})" if subresource else "")


def _owns(fields: Any, steps: tuple[str, ...]) -> bool:
    """Whether a field set (structured-merge-diff's `fieldsV1`) contains a path."""
    if not steps:
        return True
    if not isinstance(fields, Mapping):
        return False
    if not fields:
        # An atomic part: who owns it owns all that is in it.
        return True
    step, rest = steps[0], steps[1:]
    if not step.startswith("["):
        return f"f:{step}" in fields and _owns(fields[f"f:{step}"], rest)
    return any(_names(key, step[1:-1]) and _owns(inner, rest) for key, inner in fields.items())


def _names(key: str, item: str) -> bool:
    if not key.startswith("k:"):
        return False
    try:
        return item in [str(value) for value in json.loads(key[2:]).values()]
    except (ValueError, AttributeError):
        return False
