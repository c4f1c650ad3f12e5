"""What a plan says: one frozen decision per thing, with who owns it, why, and what is done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from provisioner.janitor.facts import Case


class Verdict(StrEnum):
    """What becomes of it."""

    KEEP = "Keep"
    NOTICE = "Notice"
    REMOVE = "Remove"
    POSTPONE = "Postpone"
    TIDY = "Tidy"


class Action(StrEnum):
    """What the sweep does about it."""

    NONE = "none"
    NOTIFY = "notify"
    WITHDRAW = "withdraw-notice"
    DESTROY = "destroy-stack"
    REMOVE_RECORD = "remove-empty-record"
    DELETE_OBJECTS = "delete-objects"
    DELETE_VOLUMES = "delete-volumes"
    DELETE_LEASES = "delete-expired-leases"
    UNLOCK = "clear-dead-lock"
    PRUNE = "prune-remains"


# Only these take something away that somebody may miss, so only these are bounded.
REMOVALS = frozenset({Action.DESTROY, Action.DELETE_OBJECTS, Action.DELETE_VOLUMES})

# Kept, but not because all is well: somebody should look, so the exit code says so.
UNSETTLED = frozenset(
    {
        "ClusterUnknown",
        "LockHolderUnknown",
        "OperationRunning",
        "OtherCluster",
        "OwnerUnknown",
        "StateUnreadable",
        "TerminationStuck",
    }
)


@dataclass(frozen=True)
class Decision:
    """What becomes of one thing.

    Attributes:
        stack: Name of the stack.
        owner: Who it belongs to, as far as it is known.
        age: Since when it has existed, or None.
        verdict: What becomes of it.
        reason: Why, as a CamelCase code.
        message: Why, as a sentence.
        action: What the sweep does about it.
        namespace: Namespace of its objects, or "".
        due: Not before when it is removed, if that is set.
        case: What is to be remembered of it.
    """

    stack: str
    owner: str
    age: timedelta | None
    verdict: Verdict
    reason: str
    message: str
    action: Action = Action.NONE
    namespace: str = ""
    due: datetime | None = None
    case: Case | None = None

    @property
    def unsettled(self) -> bool:
        """Whether it stays although it may have to go."""
        return self.verdict is Verdict.POSTPONE or self.reason in UNSETTLED


@dataclass(frozen=True)
class Plan:
    """What one sweep does.

    Attributes:
        cluster: Uid of the cluster's kube-system namespace.
        decisions: By stack.
        refused: Why nothing at all may be done, or "".
        brake: Why nothing is removed in this sweep, or "".
        unread: Stacks whose checkpoint must be read before they can be judged.
        unseen: Stacks whose pods must be looked at before they can be judged.
    """

    cluster: str
    decisions: tuple[Decision, ...] = ()
    refused: str = ""
    brake: str = ""
    unread: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()

    @property
    def removals(self) -> tuple[Decision, ...]:
        """The decisions that take something away, in the order in which they are carried out."""
        return tuple(item for item in self.decisions if item.verdict is Verdict.REMOVE)
