"""What came of a plan: one outcome per action, a report of the whole, and whether anything was left undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from provisioner.janitor.decision import Decision, Plan, Verdict


class Result(StrEnum):
    """How an action ended."""

    DONE = "done"
    GONE = "gone"  # somebody else had done it
    CHANGED = "changed"  # its reason did not hold any more
    BUSY = "busy"  # somebody works on it
    UNDONE = "undone"  # asked for, and not yet complete
    STOPPED = "stopped"  # the sweep was to end
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """What came of one decision.

    Attributes:
        decision: The decision.
        result: How its action ended.
        message: More about that, or "".
        hint: What to do about it, or "".
    """

    decision: Decision
    result: Result
    message: str = ""
    hint: str = ""


class Completion(StrEnum):
    """Whether a sweep left anything undone."""

    COMPLETE = "complete"
    POSTPONED = "postponed"
    FAILED = "failed"
    REFUSED = "refused"


_POSTPONED = frozenset({Result.BUSY, Result.UNDONE, Result.STOPPED})


@dataclass(frozen=True)
class Report:
    """One sweep.

    Attributes:
        plan: What was decided.
        started: When it began.
        seconds: How long it took.
        checkpoints_read: Number of checkpoints that were read for the plan.
        dry_run: Whether nothing was to be done.
        outcomes: What came of each decision with an action; none in a dry run.
        unlisted: Kinds of objects that may not be listed.
    """

    plan: Plan
    started: datetime
    seconds: float
    checkpoints_read: int = 0
    dry_run: bool = False
    outcomes: tuple[Outcome, ...] = ()
    unlisted: tuple[str, ...] = ()

    @property
    def completion(self) -> Completion:
        """Whether anything was left undone; in a dry run, whether there is anything to do."""
        if self.plan.refused:
            return Completion.REFUSED
        results = {outcome.result for outcome in self.outcomes}
        stalled = any(decision.reason == "Stalled" for decision in self.plan.decisions)
        if Result.FAILED in results or stalled:
            return Completion.FAILED
        waiting = any(decision.unsettled for decision in self.plan.decisions)
        if results & _POSTPONED or waiting or (self.dry_run and self.plan.removals):
            return Completion.POSTPONED
        return Completion.COMPLETE

    def result(self, decision: Decision) -> Outcome | None:
        """What came of a decision, if it had an action that was carried out."""
        return self._by_decision.get(id(decision))

    @cached_property
    def _by_decision(self) -> Mapping[int, Outcome]:
        return {id(outcome.decision): outcome for outcome in self.outcomes}

    @property
    def summary(self) -> Mapping[tuple[Verdict, str], int]:
        """Number of decisions by verdict and reason, the most frequent first."""
        counted = Counter((decision.verdict, decision.reason) for decision in self.plan.decisions)
        return dict(counted.most_common())

    @property
    def oldest_orphan(self) -> timedelta | None:
        """Age of the oldest service that is to go and is still there."""
        gone = {id(outcome.decision) for outcome in self.outcomes if outcome.result in (Result.DONE, Result.GONE)}
        ages = [
            decision.age
            for decision in self.plan.decisions
            if decision.verdict in (Verdict.REMOVE, Verdict.POSTPONE, Verdict.NOTICE)
            and decision.age is not None
            and (id(decision) not in gone or decision.verdict is Verdict.NOTICE)
        ]
        return max(ages, default=None)
