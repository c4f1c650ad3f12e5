"""What the backend remembers of a service: identity and specification, from the component's inputs.

They stand in the checkpoint before any object exists, so this is the answer to
"what was wanted" after every crash, and for every service that nobody in this
process has asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from provisioner.engine import Checkpoint
from provisioner.errors import PermanentError, SpecError
from provisioner.identity import ANNOTATION_BACKEND, ANNOTATION_FIELD_MANAGER, Identity, Origin
from provisioner.spec import DataServiceSpec, parse_spec
from provisioner.spec.load import plain


@dataclass(frozen=True)
class Recorded:
    """One service as it was last asked for.

    Attributes:
        identity: Its names and owner.
        spec: What was asked for, its secrets sealed.
        applied: Whether that was carried out in full. The component's inputs
            are written when an operation begins and the stack's outputs when
            all of its objects are done, so the hash among them is the proof.
        modified: When the checkpoint was written; None if it does not say.
        shared: Whether it belongs to its users together.
    """

    identity: Identity
    spec: DataServiceSpec
    applied: bool
    modified: datetime | None
    shared: bool = False


def recorded(checkpoint: Checkpoint | None) -> Recorded | None:
    """The service that a checkpoint is of.

    Args:
        checkpoint: The stack's, or None when there is no stack.

    Returns:
        None when there is no stack, or its first operation was stopped before
        it said what it was to make.

    Raises:
        PermanentError: What stands there cannot be read by this version
            (reason `RecordUnreadable`).
    """
    inputs = checkpoint.component_inputs if checkpoint is not None else {}
    if checkpoint is None or not inputs:
        return None
    try:
        given = inputs["identity"]
        identity = Identity(**{field.name: str(given[field.name]) for field in fields(Identity)})
        spec = parse_spec(plain(inputs["spec"]), source=f"recorded specification of {checkpoint.stack}")
    except (KeyError, TypeError, SpecError) as error:
        raise PermanentError(
            f"the record of stack {checkpoint.stack} cannot be read: {error}",
            reason="RecordUnreadable",
            hint="another version wrote it: use that version, or delete the service and apply it again",
        ) from error
    shared = inputs.get("shared") is True
    applied = not checkpoint.pending_operations and checkpoint.outputs.get("specHash") == spec.digest()
    return Recorded(identity, spec, applied, checkpoint.modified, shared)


def recorded_cluster(checkpoint: Checkpoint | None) -> str:
    """Uid of the kube-system namespace of the cluster that a service is in, or "" if that is not recorded.

    Args:
        checkpoint: The stack's, or None.
    """
    return str(checkpoint.component_inputs.get("cluster", "")) if checkpoint is not None else ""


def recorded_origin(checkpoint: Checkpoint | None) -> Origin:
    """Where a service is recorded and runs, as far as its record and its recorded objects tell.

    Args:
        checkpoint: The stack's, or None.
    """
    cluster = recorded_cluster(checkpoint)
    for resource in checkpoint.objects if checkpoint is not None else ():
        annotations = (resource.inputs.get("metadata") or {}).get("annotations") or {}
        if ANNOTATION_BACKEND in annotations or ANNOTATION_FIELD_MANAGER in annotations:
            told = (str(annotations.get(name, "")) for name in (ANNOTATION_BACKEND, ANNOTATION_FIELD_MANAGER))
            return Origin(cluster, *told)
    return Origin(cluster)
