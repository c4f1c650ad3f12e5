"""The state of one service, as one frozen value that every face of the product shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """Where a service is on its way."""

    QUEUED = "Queued"
    APPLYING = "Applying"
    STARTING = "Starting"
    READY = "Ready"
    FAILED = "Failed"
    REMOVING = "Removing"
    GONE = "Gone"
    IN_USE = "InUse"


@dataclass(frozen=True)
class Endpoint:
    """One port of one replica.

    Attributes:
        replica: Ordinal of the replica.
        host: DNS name of the replica's pod.
        port: Port number.
        name: Port name.
    """

    replica: int
    host: str
    port: int
    name: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Status:
    """What is known of one service now.

    Attributes:
        stack: Name of its stack.
        phase: Where it is on its way.
        reason: CamelCase code, for example `ImagePullFailed`, or "".
        message: One sentence for people.
        hint: The next step, or "".
        ready: Replicas that are ready at the current revision.
        wanted: Replicas that the specification asks for.
        endpoints: Every port of every replica; set when it is ready.
        changes: What the last operation did, one line per object.
        stalled: Whether its operation failed so often in a row that a person
            should look; it is tried again all the same.
    """

    stack: str
    phase: Phase
    reason: str = ""
    message: str = ""
    hint: str = ""
    ready: int = 0
    wanted: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    changes: tuple[str, ...] = field(default=())
    stalled: bool = False

    @property
    def final(self) -> bool:
        """Whether it stays so unless somebody asks for something new."""
        return self.phase in (Phase.READY, Phase.FAILED, Phase.GONE, Phase.IN_USE)
