"""The plan of one sweep: a pure function of what is known, the time and the policy.

Everything is decided about for itself (`assess`). Then the whole is bounded,
because the likeliest cause of a thousand orphans is a janitor that looks at
the wrong thing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from provisioner.janitor.assess import Assessment
from provisioner.janitor.decision import REMOVALS, Action, Decision, Plan, Verdict
from provisioner.janitor.facts import Inventory
from provisioner.janitor.judge import Ask
from provisioner.janitor.policy import Policy
from provisioner.janitor.subject import subjects


def plan(inventory: Inventory, now: datetime, policy: Policy) -> Plan:
    """Decide about everything that either listing shows.

    Args:
        inventory: What is known.
        now: The time, with its zone.
        policy: What may be removed, and when.
    """
    decisions: list[Decision] = []
    unread: set[str] = set()
    unseen: set[str] = set()
    services = 0
    for subject in subjects(inventory):
        services += bool(subject.record or subject.objects or subject.claims)
        found = Assessment(subject, inventory, policy, now).decide()
        if found is Ask.CHECKPOINT:
            unread.add(subject.stack)
        elif found is Ask.PODS:
            unseen.add(subject.stack)
        else:
            decisions += found
    bounded, brake = _bounded(decisions, services, policy)
    return Plan(
        inventory.cluster, tuple(bounded), _refusal(inventory, policy), brake, frozenset(unread), frozenset(unseen)
    )


def _bounded(decisions: list[Decision], services: int, policy: Policy) -> tuple[list[Decision], str]:
    """Hold back what is too much for one sweep: all of it, or what is beyond the oldest so many."""
    removals = [item for item in decisions if _counts(item)]
    removals.sort(key=lambda item: (-(item.age or timedelta()).total_seconds(), item.stack))
    share = len(removals) / services if services else 0.0
    if len(removals) > policy.brake_from and share > policy.max_share:
        brake = (
            f"{len(removals)} of {services} services would be removed, more than {policy.max_share:.0%}: "
            "nothing is removed"
        )
        return [_postponed(item, "Brake", brake) if _counts(item) else item for item in decisions], brake
    late = {item.stack for item in removals[policy.max_destroys :]}
    why = f"one sweep removes at most {policy.max_destroys}"
    return [_postponed(item, "Limit", why) if _counts(item) and item.stack in late else item for item in decisions], ""


def _counts(decision: Decision) -> bool:
    return decision.verdict is Verdict.REMOVE and decision.action in REMOVALS


def _postponed(decision: Decision, reason: str, why: str) -> Decision:
    return replace(
        decision,
        verdict=Verdict.POSTPONE,
        reason=reason,
        message=f"{decision.message} ({decision.reason}); {why}",
        action=Action.NONE,
    )


def _refusal(inventory: Inventory, policy: Policy) -> str:
    """Whether this is the wrong cluster altogether: a kubeconfig that was switched."""
    if policy.cluster and inventory.cluster != policy.cluster:
        return f"this janitor is for cluster {policy.cluster}, and this one is {inventory.cluster}"
    elsewhere = ""
    for name, stack in inventory.stacks.items():
        recorded = stack.checkpoint.cluster if stack.checkpoint is not None else ""
        if recorded == inventory.cluster or name in inventory.objects:
            return ""
        elsewhere = elsewhere or recorded
    if not elsewhere:
        return ""
    return f"none of the stacks belongs to this cluster ({inventory.cluster}); they belong to {elsewhere}"
