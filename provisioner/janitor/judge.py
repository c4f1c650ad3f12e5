"""Whether something has lost its reason to be: the first half of each decision, a pure function.

What speaks for a service counts before what speaks against it: an owner that
cannot be asked keeps it, an owner that is alive keeps it. Only two things end
it while its owner lives, because its specification said so: its ttl, and a
start deadline that passed without it ever having been ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeGuard

from provisioner.cluster.leases import LEASES
from provisioner.janitor.decision import Action
from provisioner.janitor.facts import Alive, Ended, Inventory, Liveness, Owner, Unknown
from provisioner.janitor.policy import Policy, Rules, Source
from provisioner.janitor.subject import Subject
from provisioner.spec import format_duration

# An object that is still terminating after this time waits for somebody's finalizer.
_TERMINATION = timedelta(hours=1)
_LEASE_EXPIRED = "LeaseExpired"


class Ask(StrEnum):
    """What must be found out before something can be judged."""

    CHECKPOINT = "checkpoint"
    PODS = "pods"


@dataclass(frozen=True)
class Kept:
    """It stays.

    Attributes:
        reason: Why, as a CamelCase code.
        message: Why, as a sentence.
    """

    reason: str
    message: str


@dataclass(frozen=True)
class Cause:
    """It has lost its reason to be.

    Attributes:
        reason: Why, as a CamelCase code.
        message: Why, as a sentence.
        since: Since when; None if only the first sight of it is known.
        hold: Seconds that it stays from then on.
        action: How it is removed.
        noticed: Whether people are told before.
    """

    reason: str
    message: str
    since: datetime | None
    hold: int
    action: Action
    noticed: bool = True


def liveness(subject: Subject, inventory: Inventory, policy: Policy, now: datetime) -> Liveness | None:
    """What all who are asked say together: one that needs it is enough, and so is one that cannot be asked.

    Args:
        subject: The service.
        inventory: With what they said.
        policy: Who is asked.
        now: The time.

    Returns:
        None when it has no owner that anybody is asked about.
    """
    answers: list[Liveness] = []
    if Source.LEASE in policy.sources and (subject.leases or subject.shared):
        unlisted = LEASES.plural in inventory.unlisted
        answers.append(Unknown("leases may not be listed") if unlisted else _by_leases(subject, inventory, now))
    if Source.OBJECT in policy.sources and subject.owner_object:
        answers.append(inventory.referents.get(subject.owner_object, Unknown("its owner object was not asked for")))
    owner = subject.owner
    if asked_about(owner, policy):
        answers.append(inventory.executions.get(owner, Unknown("its execution was not asked for")))
    return combine(answers)


def asked_about(owner: Owner | None, policy: Policy) -> TypeGuard[Owner]:
    """Whether somebody is asked if an owner lives: it is an execution, and one that a source may know.

    Args:
        owner: Of a service.
        policy: Who is asked.
    """
    if owner is None or not owner.execution or owner.unknowable:
        return False
    return policy.asks_execution(owner.project, owner.domain)


def combine(answers: list[Liveness]) -> Liveness | None:
    """One answer from several: alive before unknown before ended.

    Args:
        answers: Of all sources.
    """
    for kind in (Alive, Unknown):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    ended = [answer for answer in answers if isinstance(answer, Ended)]
    if not ended:
        return None
    times = [answer.at for answer in ended if answer.at is not None]
    return Ended(
        "; ".join(dict.fromkeys(answer.why for answer in ended)),
        max(times) if len(times) == len(ended) else None,
        any(answer.failed for answer in ended),
        max(answer.reason for answer in ended),
    )


def _by_leases(subject: Subject, inventory: Inventory, now: datetime) -> Liveness:
    ends = {lease: inventory.end_of(lease, now) for lease in subject.leases}
    held = [lease.holder or lease.name for lease, end in ends.items() if end is None]
    if held:
        return Alive(f"{held[0]} uses it" + (f", and {len(held) - 1} more" if len(held) > 1 else ""))
    over = [end for end in ends.values() if end is not None]
    if not over:
        return Ended("none of its users is left", reason=_LEASE_EXPIRED)
    times = [end.at for end in over if end.at is not None]
    last = max(over, key=lambda end: end.at.timestamp() if end.at is not None else float("inf"))
    return Ended(last.why, max(times) if len(times) == len(over) else None, reason=_LEASE_EXPIRED)


def judge(subject: Subject, inventory: Inventory, policy: Policy, rules: Rules, now: datetime) -> Kept | Cause | Ask:
    """Whether a service has lost its reason to be.

    Args:
        subject: The service; it has a record or objects.
        inventory: What else is known.
        policy: Who is asked about owners.
        rules: Those of its project and domain.
        now: The time.
    """
    if subject.record is not None and subject.checkpoint is None and _unclear(subject):
        return Ask.CHECKPOINT
    first = _special(subject, inventory, now)
    if first is not None:
        return first
    alive = liveness(subject, inventory, policy, now)
    if isinstance(alive, Unknown):
        return Kept("OwnerUnknown", alive.why)
    declared = _declared(subject, inventory, rules, now)
    if declared is not None:
        return declared
    if isinstance(alive, Alive):
        return Kept("InUse", alive.why)
    if isinstance(alive, Ended):
        if subject.retain:
            return Kept("Retained", f"{alive.why}; its deletion policy keeps it")
        hold = rules.failure_retention if alive.failed else rules.grace
        return Cause(alive.reason, alive.why, alive.at, hold, _removal(subject))
    return _unowned(subject, rules, now)


def _unclear(subject: Subject) -> bool:
    """Whether the objects alone do not tell whose it is, or that it was made in full."""
    return subject.owner is None or subject.stateful_set is None


def _removal(subject: Subject) -> Action:
    return Action.DESTROY if subject.record is not None else Action.DELETE_OBJECTS


def _special(subject: Subject, inventory: Inventory, now: datetime) -> Kept | Cause | None:
    """What is decided without an owner."""
    checkpoint = subject.checkpoint
    if checkpoint is not None and checkpoint.unreadable:
        return Kept("StateUnreadable", checkpoint.unreadable)
    if checkpoint is not None and checkpoint.foreign:
        return Kept("NotOurs", "its stack holds something that is no data service")
    if checkpoint is not None and checkpoint.empty and not subject.objects:
        modified = subject.record.modified if subject.record is not None else None
        message = "its record is empty: its creation was interrupted, or all of it was deleted"
        return Cause("EmptyRecord", message, modified, 0, Action.REMOVE_RECORD, noticed=False)
    if inventory.namespaces and subject.namespace not in inventory.namespaces:
        return Kept("OutOfScope", f"namespace {subject.namespace or 'unknown'} is not swept")
    if subject.record is None and all(item.deleted for item in subject.objects):
        deleted = min(item.deleted for item in subject.objects if item.deleted)
        if now - deleted > _TERMINATION:
            waiting = ", ".join(str(item) for item in subject.objects)
            return Kept("TerminationStuck", f"{waiting} was deleted at {deleted.isoformat()}; a finalizer holds it")
        return Kept("Terminating", "its objects are on their way out")
    return None


def _declared(subject: Subject, inventory: Inventory, rules: Rules, now: datetime) -> Cause | Ask | None:
    """What ends it whether its owner lives or not: a removal that had begun, its ttl, its start deadline."""
    checkpoint, created = subject.checkpoint, subject.created
    if any(inventory.end_of(lease, now) is None for lease in subject.leases):
        return None
    if checkpoint is not None and checkpoint.deleting:
        modified = subject.record.modified if subject.record is not None else None
        return Cause("FailedDestroy", "its removal had begun and was not finished", modified, 0, Action.DESTROY)
    if created is None:
        return None
    if subject.ttl is not None and created + timedelta(seconds=subject.ttl) <= now:
        message = f"its ttl of {format_duration(subject.ttl)} is over"
        return Cause("TtlExpired", message, created + timedelta(seconds=subject.ttl), 0, _removal(subject))
    return _never_started(subject, created, rules, now)


def _never_started(subject: Subject, created: datetime, rules: Rules, now: datetime) -> Cause | Ask | None:
    if subject.start_deadline is None:
        return None
    deadline = created + timedelta(seconds=subject.start_deadline)
    if now < deadline:
        return None
    checkpoint, stateful_set = subject.checkpoint, subject.stateful_set
    allowed = format_duration(subject.start_deadline)
    if checkpoint is not None and not checkpoint.applied and stateful_set is None:
        message = f"it was not created in full within its start deadline of {allowed}"
        return Cause("StartDeadlineExpired", message, deadline, rules.grace, _removal(subject))
    if stateful_set is None or stateful_set.ready or not stateful_set.replicas:
        return None
    if subject.pods is None:
        return Ask.PODS
    # A pod made later says nothing about those before it.
    seen_all = all(pod.created is not None and pod.created <= deadline for pod in subject.pods)
    if subject.pods and seen_all and not any(pod.ever_ready for pod in subject.pods):
        message = f"none of its replicas was ever ready, and its start deadline of {allowed} is over"
        return Cause("StartDeadlineExpired", message, deadline, rules.failure_retention, _removal(subject))
    return None


def _unowned(subject: Subject, rules: Rules, now: datetime) -> Kept | Cause:
    """Nobody is asked about it: it has no owner, or an owner that no chosen source knows."""
    if rules.max_age is not None and subject.ttl is None and subject.created is not None:
        end = subject.created + timedelta(seconds=rules.max_age)
        if end <= now:
            message = f"older than the {format_duration(rules.max_age)} that services without an owner may live"
            return Cause("MaxAgeExceeded", message, end, 0, _removal(subject))
    owner = subject.owner
    if (owner is not None and owner.execution) or subject.owner_object or subject.shared:
        return Kept("OwnerNotAsked", "nobody is asked whether its owner lives; only its ttl counts")
    if subject.record is not None:
        made = subject.checkpoint is not None and subject.checkpoint.applied
        if not subject.objects or (made and subject.stateful_set is None):
            what = "its StatefulSet" if subject.objects else "all of it"
            return Cause("ObjectsGone", f"{what} is gone from the cluster", None, 0, Action.DESTROY)
        return Kept("NoOwner", "no execution owns it; it stays until it is removed, or until its ttl")
    if subject.retain:
        return Kept("Retained", "it has no record; its deletion policy keeps it")
    return Cause("RecordGone", "its objects have no record any more", None, 0, Action.DELETE_OBJECTS)
