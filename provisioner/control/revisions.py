"""The specifications that a service had: from the engine's history of its stack.

The engine keeps the checkpoint of each operation, and each holds the
component's inputs. So what was applied can be applied again, by whatever tool
it was applied, and nothing of our own has to be kept consistent with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from provisioner.control.recorded import Recorded, recorded
from provisioner.engine import Checkpoint
from provisioner.errors import PermanentError
from provisioner.spec import DataServiceSpec


@dataclass(frozen=True)
class Revision:
    """One specification that a service had.

    Attributes:
        spec: It, with its secrets sealed.
        applied: When it was applied last.
    """

    spec: DataServiceSpec
    applied: datetime | None

    @property
    def digest(self) -> str:
        """By which it is named."""
        return self.spec.digest()


def revisions(checkpoints: Iterable[Checkpoint]) -> list[Revision]:
    """The specifications that were applied in full, each once, the newest first.

    Args:
        checkpoints: Of one stack, the newest first.
    """
    found: dict[str, Revision] = {}
    for checkpoint in checkpoints:
        record = _readable(checkpoint)
        if record is not None and record.applied:
            found.setdefault(record.spec.digest(), Revision(record.spec, record.modified))
    return list(found.values())


def _readable(checkpoint: Checkpoint) -> Recorded | None:
    try:
        return recorded(checkpoint)
    except PermanentError:
        # Another version wrote it, with fields that this one does not know: nothing to go back to.
        return None


def choose(known: Iterable[Revision], current: DataServiceSpec, wanted: str | None, service: str) -> Revision:
    """The revision to go back to.

    Args:
        known: The newest first.
        current: What is asked for now.
        wanted: The beginning of a digest; the one before the current when None.
        service: Name of the service, for the error.

    Raises:
        PermanentError: There is none, or several begin so.
    """
    others = [revision for revision in known if revision.digest != current.digest()]
    chosen = others[:1] if wanted is None else [item for item in others if item.digest.startswith(wanted)]
    if len(chosen) == 1:
        return chosen[0]
    what = f"no revision {wanted}" if wanted else "no earlier revision"
    raise PermanentError(
        f"service {service} has {what}" if not chosen else f"several revisions of {service} begin with {wanted}",
        reason="NoSuchRevision",
        hint=f"see `provisioner history {service}`",
    )
