"""Take a recorded service down without harm to what is somebody else's."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from provisioner.cluster import ForeignObject
from provisioner.engine import Cancellation, Stack

_log = structlog.get_logger(__name__)


def take_down(
    stack: Stack, foreign: Sequence[ForeignObject], *, deadline: float, cancellation: Cancellation | None = None
) -> None:
    """Let the engine delete what it recorded, unless somebody else's object has taken such a name.

    The engine deletes by name. So in that case the record is dropped, and what
    is ours has to be found by its label and deleted by its uid.

    Args:
        stack: The service's.
        foreign: Objects that have the service's names and not its label.
        deadline: Seconds that it may take.
        cancellation: Stops it.

    Raises:
        ProvisionerError: It failed; classified.
    """
    if foreign:
        _log.warning("an object of that name is somebody else's", stack_name=stack.name, object=str(foreign[0]))
        stack.forget()
        return
    stack.destroy(deadline=deadline, cancellation=cancellation)
