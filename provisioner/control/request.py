"""What is asked for: everything that control needs to begin, or to begin again after a crash."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from provisioner.errors import PermanentError
from provisioner.identity import Identity
from provisioner.spec import DataServiceSpec, parse_spec


@dataclass(frozen=True)
class ServiceRequest:
    """One service that somebody wants.

    Attributes:
        identity: Whose it is and how it is called.
        spec: What it is.
        accepted_at: When it was first asked for, in seconds since the epoch;
            its start deadline counts from here, across restarts.
        replace: Whether what cannot be changed in place may be made anew, with
            the loss of its data.
        shared: Whether it belongs to its users together: it ends with the
            last lease on it, and not with an execution.
    """

    identity: Identity
    spec: DataServiceSpec
    accepted_at: float
    replace: bool = False
    shared: bool = False

    @property
    def stack(self) -> str:
        """Name of its stack: the key of all that is done for it."""
        return self.identity.stack

    @property
    def deadline(self) -> float:
        """When it must be ready, in seconds since the epoch."""
        return self.accepted_at + self.spec.start_deadline

    def same(self, other: ServiceRequest) -> bool:
        """Whether both lead to the same service in the same way."""
        return self.spec == other.spec and self.replace == other.replace

    def document(self) -> dict[str, Any]:
        """As plain data; the inverse of `from_document`. Its secrets are sealed, or it is refused."""
        return {
            "identity": asdict(self.identity),
            "spec": self.spec.document(),
            "acceptedAt": round(self.accepted_at, 3),
            **({"replace": True} if self.replace else {}),
            **({"shared": True} if self.shared else {}),
        }

    @classmethod
    def from_document(cls, document: Any) -> ServiceRequest:
        """Read what `document` wrote.

        Raises:
            PermanentError: It is not such a document.
            SpecError: Its specification is not valid.
        """
        try:
            identity = Identity(**{field.name: str(document["identity"][field.name]) for field in fields(Identity)})
            spec, accepted_at = parse_spec(document["spec"]), float(document["acceptedAt"])
            flags = (document.get(key) is True for key in ("replace", "shared"))
            return cls(identity, spec, accepted_at, *flags)
        except (KeyError, TypeError, ValueError) as error:
            raise PermanentError(
                f"not the document of a service request: {error!r} in {json.dumps(document, default=str)[:200]}",
                reason="InvalidRequest",
                hint="it was written by another version or by somebody else; create the service again",
            ) from error
