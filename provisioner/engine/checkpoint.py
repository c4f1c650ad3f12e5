"""A stack's checkpoint as a value: what was recorded, what was under way, what was wanted.

Reading it directly costs no process, which is what makes a poll and a sweep
free. The format is the engine's own (Pulumi's `apitype.CheckpointV3` inside a
`VersionedCheckpoint`, and `UntypedDeployment` as `stack export` prints it).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from provisioner.engine.changes import STACK_TYPE, masked
from provisioner.engine.environment import PROJECT


class CheckpointError(ValueError):
    """The bytes are not a checkpoint: cut short, or not written by the engine."""


@dataclass(frozen=True)
class Resource:
    """One resource of a checkpoint.

    Attributes:
        urn: Its Pulumi URN.
        type: Its type token.
        custom: Whether a provider manages it (a component is not custom).
        id: The provider's id of it, for example `default/graph`; "" if none.
        parent: URN of its parent, or "".
        inputs: What was wanted; encrypted values are `[secret]`.
        outputs: What the provider answered; encrypted values are `[secret]`.
    """

    urn: str
    type: str
    custom: bool = False
    id: str = ""
    parent: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    outputs: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The last part of its URN."""
        return self.urn.rsplit("::", 1)[-1]


@dataclass(frozen=True)
class PendingOperation:
    """A step that had begun when the checkpoint was written last.

    Attributes:
        kind: `creating`, `updating`, `deleting`, `reading` or `importing`.
        resource: What it was about.
    """

    kind: str
    resource: Resource


@dataclass(frozen=True)
class Checkpoint:
    """What the backend knows of a stack.

    Attributes:
        stack: Its name.
        version: Of the format.
        engine: Version of the CLI that wrote it, for example `v3.274.1`.
        modified: When it was written; None for a stack that never had anything.
        resources: In the order of their creation.
        pending_operations: Begun and not known to be finished.
        document: All of it, as it stands in the backend.
    """

    stack: str
    version: int = 3
    engine: str = ""
    modified: datetime | None = None
    resources: tuple[Resource, ...] = ()
    pending_operations: tuple[PendingOperation, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The stack's outputs: those of the last update that succeeded."""
        return next((resource.outputs for resource in self.resources if resource.type == STACK_TYPE), {})

    @property
    def component(self) -> Resource | None:
        """The component below the stack: its inputs hold what was wanted, before any child exists."""
        return next(
            (resource for resource in self.resources if not resource.custom and resource.type != STACK_TYPE), None
        )

    @property
    def component_inputs(self) -> Mapping[str, Any]:
        """The component's inputs; empty when it was never registered."""
        return self.component.inputs if self.component is not None else {}

    @property
    def deployment(self) -> Mapping[str, Any]:
        """The part of the document that holds resources and pending operations, secrets as they are stored."""
        inside = self.document.get("checkpoint")
        return (inside.get("latest") if inside is not None else self.document.get("deployment")) or {}

    @property
    def objects(self) -> tuple[Resource, ...]:
        """The resources that stand for something in a cluster."""
        return tuple(resource for resource in self.resources if resource.type.startswith("kubernetes:"))


def parse(stack: str, content: bytes) -> Checkpoint:
    """Read a checkpoint as the backend stores it, or as `stack export` prints it.

    Args:
        stack: Name of the stack.
        content: The file's bytes, gzip-compressed or not.

    Raises:
        CheckpointError: They are not a checkpoint.
    """
    try:
        document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        version = int(document.get("version", 3))
        # A stack whose `init` was killed has no deployment yet.
        holder = document["checkpoint"].get("latest") if "checkpoint" in document else document["deployment"]
        deployment: Mapping[str, Any] = holder or {}
        manifest = deployment.get("manifest") or {}
        return Checkpoint(
            stack=stack,
            version=version,
            engine=str(manifest.get("version", "")),
            modified=_time(manifest.get("time")),
            resources=tuple(_resource(item) for item in deployment.get("resources") or ()),
            pending_operations=tuple(
                PendingOperation(str(item["type"]), _resource(item["resource"]))
                for item in deployment.get("pending_operations") or ()
            ),
            document=document,
        )
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError) as error:
        raise CheckpointError(f"{type(error).__name__}: {error}") from error


def _time(text: Any) -> datetime | None:
    # Go's zero time stands for "never".
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    return parse_time(text)


def parse_time(text: str) -> datetime:
    """A time as Go writes it (RFC 3339, up to nine digits after the point).

    Args:
        text: For example `2026-05-09T07:29:33.123456789Z`.

    Raises:
        ValueError: It is not one.
    """
    head, point, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    shown = f"{head}.{digits[:6].ljust(6, '0')}{zone}" if point else text
    return datetime.fromisoformat(shown)


def _resource(item: Mapping[str, Any]) -> Resource:
    return Resource(
        urn=str(item["urn"]),
        type=str(item["type"]),
        custom=bool(item.get("custom", False)),
        id=str(item.get("id", "")),
        parent=str(item.get("parent", "")),
        inputs=masked(item.get("inputs") or {}),
        outputs=masked(item.get("outputs") or {}),
    )


def edited(
    checkpoint: Checkpoint, *, resources: Sequence[Mapping[str, Any]], pending_operations: Sequence[Mapping[str, Any]]
) -> bytes:
    """A checkpoint's bytes with other resources and pending operations, and the rest as it was.

    Args:
        checkpoint: As it stands in a self-managed backend.
        resources: In the order of their dependencies.
        pending_operations: Those that stay.
    """
    latest = {**checkpoint.deployment, "resources": list(resources), "pending_operations": list(pending_operations)}
    inner = {**checkpoint.document["checkpoint"], "latest": latest}
    return json.dumps({**checkpoint.document, "checkpoint": inner}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Component:
    """A component as the first of a stack's resources to be registered.

    Attributes:
        type: Its type token.
        name: Its name.
        inputs: What is wanted, none of it secret.
    """

    type: str
    name: str
    inputs: Mapping[str, Any]


def first(stack: str, component: Component | None = None) -> bytes:
    """The checkpoint of a stack that no engine has worked on.

    Args:
        stack: Its name.
        component: Recorded in it as by an engine that was stopped just after
            its program had registered it; None for a stack that is empty.
    """
    checkpoint: dict[str, Any] = {"stack": f"organization/{PROJECT}/{stack}"}
    if component is not None:
        top = f"urn:pulumi:{stack}::{PROJECT}::{STACK_TYPE}::{PROJECT}-{stack}"
        urn = f"urn:pulumi:{stack}::{PROJECT}::{component.type}::{component.name}"
        checkpoint["latest"] = {
            # No version: the engine checks the magic only of one that it wrote.
            "manifest": {"time": datetime.now(UTC).isoformat(), "magic": "", "version": ""},
            "resources": [
                {"urn": top, "custom": False, "type": STACK_TYPE},
                {
                    "urn": urn,
                    "custom": False,
                    "type": component.type,
                    "parent": top,
                    "inputs": component.inputs,
                },
            ],
        }
    return json.dumps({"version": 3, "checkpoint": checkpoint}).encode()
