"""What becomes of one service: a pure function of what is known of it, the time and the policy.

Each decision is made in the same order: has it lost its reason to be
(`judge`); does anything forbid its removal all the same; is it time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from provisioner.engine.recovery import Holder
from provisioner.identity import ANNOTATION_KEEP, ANNOTATION_NOTICE
from provisioner.janitor.decision import Action, Decision, Verdict
from provisioner.janitor.facts import Case, Inventory
from provisioner.janitor.judge import Ask, Cause, Kept, judge
from provisioner.janitor.policy import Policy, Rules
from provisioner.janitor.subject import Subject
from provisioner.spec import format_duration

# It stays for the moment: what is remembered of it stays as well.
_FOR_NOW = frozenset(
    {
        "BackendUnknown",
        "ClusterUnknown",
        "LockHolderUnknown",
        "OperationRunning",
        "OtherBackend",
        "OtherCluster",
        "OwnerUnknown",
        "StateUnreadable",
        "Terminating",
        "TerminationStuck",
        "Young",
    }
)


def notice_text(due: datetime, reason: str) -> str:
    """The value of the annotation that warns of a removal.

    Args:
        due: Not before when.
        reason: Why.

    Example:
        >>> from datetime import UTC
        >>> notice_text(datetime(2026, 5, 9, 7, 0, tzinfo=UTC), "OwnerEnded")
        '2026-05-09T07:00:00+00:00 OwnerEnded'
    """
    return f"{due.isoformat(timespec='seconds')} {reason}"


class Assessment:
    """Decides about one service.

    Args:
        subject: The service.
        inventory: What else is known.
        policy: What may be removed, and when.
        now: The time, with its zone.
    """

    def __init__(self, subject: Subject, inventory: Inventory, policy: Policy, now: datetime) -> None:
        self._subject = subject
        self._inventory = inventory
        self._policy = policy
        self._now = now
        owner = subject.owner
        self._rules: Rules = policy.rules(owner.project, owner.domain) if owner else policy.rules("", "")

    def decide(self) -> list[Decision] | Ask:
        """The decision about it, and the small repairs that go with it."""
        subject = self._subject
        if subject.record is None and not subject.objects:
            main = self._left_over()
        else:
            found = self._service()
            if isinstance(found, Ask):
                return found
            main = found
        return [*([main] if main is not None else []), *self._repairs(main)]

    def _service(self) -> Decision | Ask:
        found = judge(self._subject, self._inventory, self._policy, self._rules, self._now)
        if isinstance(found, Cause):
            veto = self._veto(found)
            if veto is None:
                return self._timed(found)
            found = veto
        if isinstance(found, Ask):
            # What has just changed need not be looked into.
            return self._stays(_young(self._rules)) if self._is_young() else found
        return self._stays(found)

    def _veto(self, cause: Cause) -> Kept | Ask | None:
        """What forbids a removal although there is a cause."""
        subject = self._subject
        locks = {lock.holder: lock for lock in (subject.record.locks if subject.record else ())}
        if Holder.ALIVE in locks:
            return Kept("OperationRunning", f"{cause.message}, but {locks[Holder.ALIVE].text} works on it")
        if Holder.UNKNOWN in locks:
            lock = locks[Holder.UNKNOWN]
            message = f"{cause.message}, but {lock.text} holds a lock, and whether it lives cannot be known"
            return Kept("LockHolderUnknown", f"{message}; delete {lock.place} if it is gone for good")
        if self._is_young():
            return _young(self._rules)
        kept = self._keep_annotation()
        if kept is not None:
            return Kept("KeepAnnotation", f"{cause.message}, but {kept}")
        if self._rules.keep:
            return Kept("KeptByRule", f"{cause.message}, but the rules of its project and domain keep everything")
        return self._recorded_veto(cause) if subject.record is not None else self._unrecorded_veto(cause)

    def _unrecorded_veto(self, cause: Cause) -> Kept | None:
        """Objects that have no record here may have one elsewhere."""
        backend = self._subject.backend
        if backend and backend != self._inventory.backend:
            return Kept("OtherBackend", f"{cause.message}, but its objects are recorded in backend {backend}")
        if not backend and not self._policy.unmarked:
            return Kept("BackendUnknown", f"{cause.message}, but its objects do not say where they are recorded")
        return None

    def _recorded_veto(self, cause: Cause) -> Kept | Ask | None:
        subject, checkpoint = self._subject, self._subject.checkpoint
        if checkpoint is None:
            return Ask.CHECKPOINT
        if checkpoint.protected:
            return Kept("Protected", f"{cause.message}, but {', '.join(checkpoint.protected)} is protected")
        if checkpoint.cluster and checkpoint.cluster != self._inventory.cluster:
            return Kept("OtherCluster", f"{cause.message}, but it belongs to cluster {checkpoint.cluster}")
        if checkpoint.cluster or not checkpoint.objects or self._policy.unmarked:
            return None
        if checkpoint.uids & {item.uid for item in (*subject.objects, *subject.claims)}:
            return None
        return Kept("ClusterUnknown", f"{cause.message}, but it does not say which cluster it belongs to")

    def _is_young(self) -> bool:
        touched = self._subject.touched
        return touched is not None and self._now - touched < timedelta(seconds=self._rules.min_age)

    def _keep_annotation(self) -> str | None:
        value = self._subject.annotation(ANNOTATION_KEEP)
        if not value or value.lower() in ("false", "no"):
            return None
        until = _time(value)
        if until is None:
            return f"it is annotated {ANNOTATION_KEEP}={value}"
        return f"it is to be kept until {value}" if self._now < until else None

    def _timed(self, cause: Cause) -> Decision:
        """There is a cause, and nothing forbids it: is it time?"""
        subject, rules, now = self._subject, self._rules, self._now
        case = subject.case or Case(subject.stack, cause.reason, now)
        case = replace(case, reason=cause.reason)
        if case.failures and case.retry_at is not None and now < case.retry_at:
            return self._failing(cause, case)
        hold = timedelta(seconds=cause.hold)
        notice = timedelta(seconds=rules.notice if cause.noticed else 0)
        due = case.first_seen + max(hold, notice)
        if cause.since is not None:
            due = max(cause.since + hold, case.first_seen + notice)
        if subject.touched is None:
            # The backend does not say when it changed: from the first sight on, then.
            due = max(due, case.first_seen + timedelta(seconds=rules.min_age))
        if now >= due:
            return self._decision(Verdict.REMOVE, cause.reason, cause.message, cause.action, due=due, case=case)
        due = _whole_seconds(due)
        told = subject.case is not None and self._shows(notice_text(due, cause.reason))
        message = f"{cause.message}; to be removed not before {due.isoformat()}"
        action = Action.NONE if told else Action.NOTIFY
        return self._decision(Verdict.NOTICE, cause.reason, message, action, due=due, case=case)

    def _shows(self, text: str) -> bool:
        objects = self._subject.objects or self._subject.claims
        return not objects or self._subject.annotation(ANNOTATION_NOTICE) == text

    def _failing(self, cause: Cause, case: Case) -> Decision:
        stalled = case.failures >= self._policy.retry.stalled_after
        when = case.retry_at.isoformat(timespec="seconds") if case.retry_at else ""
        message = f"{cause.message}; its removal failed {case.failures} times, last: {case.error}; next try at {when}"
        if stalled and case.steps:
            message += ". What to do: " + "; ".join(case.steps)
        return self._decision(
            Verdict.POSTPONE, "Stalled" if stalled else "Backoff", message, due=case.retry_at, case=case
        )

    def _left_over(self) -> Decision | None:
        """Neither a stack nor an object that runs: claims, leases, notes."""
        subject = self._subject
        if subject.claims:
            return self._volumes()
        if any(self._inventory.end_of(lease, self._now) is None for lease in subject.leases):
            return self._stays(Kept("InUse", "a user holds a lease on it before it exists"))
        if subject.case is not None:
            return self._decision(Verdict.TIDY, "Gone", "nothing of it is left", Action.WITHDRAW, case=subject.case)
        return None

    def _volumes(self) -> Decision:
        subject, rules = self._subject, self._rules
        if all(item.deleted for item in subject.claims):
            return self._stays(Kept("Terminating", "its claims are on their way out"))
        if self._inventory.namespaces and subject.namespace not in self._inventory.namespaces:
            return self._stays(Kept("OutOfScope", f"namespace {subject.namespace} is not swept"))
        kept = self._keep_annotation()
        if kept is not None:
            return self._stays(Kept("KeepAnnotation", f"its service is gone, but {kept}"))
        if rules.keep or rules.volume_retention is None:
            return self._stays(Kept("VolumesKept", "its service is gone; the rules keep its claims"))
        message = f"its service is gone; claims are kept for {format_duration(rules.volume_retention)} after that"
        return self._timed(
            Cause("VolumeRetentionExpired", message, None, rules.volume_retention, Action.DELETE_VOLUMES)
        )

    def _repairs(self, main: Decision | None) -> Iterator[Decision]:
        """What is put right whatever becomes of the service."""
        subject = self._subject
        if main is not None and main.reason in ("OperationRunning", "LockHolderUnknown", "OutOfScope"):
            return
        if subject.record is None and subject.stack in self._inventory.remains:
            modified = self._inventory.remains[subject.stack]
            if modified is None or self._now - modified >= timedelta(seconds=self._rules.min_age):
                yield self._tidy("Remains", "history, backups or locks of a stack that is gone", Action.PRUNE)
        if main is not None and main.verdict is Verdict.REMOVE:
            return
        holders = [lock.holder for lock in (subject.record.locks if subject.record else ())]
        if holders and all(holder is Holder.DEAD for holder in holders):
            yield self._tidy("DeadLock", "a lock whose holder is dead would lock it for ever", Action.UNLOCK)
        if subject.stack in self._inventory.surplus:
            yield self._tidy("SurplusBackups", "more backups than are kept", Action.PRUNE)
        if main is not None and main.reason != "InUse":
            # An expired lease is what says that the service was somebody's.
            return
        late = self._now - timedelta(seconds=self._rules.grace)
        ends = [end for lease in subject.leases if (end := self._inventory.end_of(lease, self._now)) is not None]
        if any(end.at is None or end.at <= late for end in ends):
            message = "a user's lease expired, or its execution ended"
            yield self._tidy("LeaseExpired", message, Action.DELETE_LEASES)

    def _stays(self, kept: Kept) -> Decision:
        case = self._subject.case
        withdrawn = kept.reason not in _FOR_NOW and (case is not None or self._warned())
        action = Action.WITHDRAW if withdrawn else Action.NONE
        return self._decision(Verdict.KEEP, kept.reason, kept.message, action, case=case)

    def _warned(self) -> bool:
        return bool(self._subject.annotation(ANNOTATION_NOTICE))

    def _tidy(self, reason: str, message: str, action: Action) -> Decision:
        return self._decision(Verdict.TIDY, reason, message, action)

    def _decision(
        self,
        verdict: Verdict,
        reason: str,
        message: str,
        action: Action = Action.NONE,
        *,
        due: datetime | None = None,
        case: Case | None = None,
    ) -> Decision:
        subject, owner = self._subject, self._subject.owner
        return Decision(
            stack=subject.stack,
            owner=str(owner).removesuffix(":") if owner else "",
            age=subject.age(self._now),
            verdict=verdict,
            reason=reason,
            message=message,
            action=action,
            namespace=subject.namespace,
            due=due,
            case=case,
        )


def _young(rules: Rules) -> Kept:
    return Kept("Young", f"it changed within the last {format_duration(rules.min_age)}")


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _whole_seconds(moment: datetime) -> datetime:
    return moment if not moment.microsecond else moment.replace(microsecond=0) + timedelta(seconds=1)
