"""Why a service is not ready: the one cause that matters most, in words, with the next step.

A pure function of what is known, so that every case is a table entry in the
tests, made of objects that a real cluster wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal

from provisioner.cluster.findings import containers, images, pods, service
from provisioner.cluster.findings.finding import Facts, Finding
from provisioner.cluster.findings.rules import GRACES, RULES, UNREACHABLE
from provisioner.cluster.objects import Pod, PodRef, Snapshot
from provisioner.spec import DataServiceSpec

_RANK = {reason: rank for rank, reason in enumerate(RULES)}
_END = datetime.max.replace(tzinfo=UTC)
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a service is not ready.

    Attributes:
        level: `error` when it is final or waiting cannot help, else `warning`.
        reason: CamelCase code, a key of `findings.rules.RULES`.
        subject: The object that it is about, for example `pod default/store-0`.
        summary: One sentence that names the object and the value.
        detail: What the cluster itself said, or the last lines of a log.
        hint: The next step.
        final: Whether its grace is over: the service has failed.
        waiting_helps: Whether it may pass without anybody doing something.
        since: Since when it has been so, as far as the cluster tells.
        wants_logs: The log that would tell more; fetch its last lines and
            diagnose again with them.
    """

    level: Literal["warning", "error"]
    reason: str
    subject: str
    summary: str
    detail: str
    hint: str
    final: bool
    waiting_helps: bool
    since: datetime | None
    wants_logs: PodRef | None = None

    def __str__(self) -> str:
        return f"{self.summary} [{self.reason}]"


def _findings(facts: Facts) -> Iterator[Finding]:
    current = _is_current(facts)
    for finding in service.find(facts):
        yield finding if current else replace(finding, passing=True)
    for pod in facts.snapshot.pods:
        if not pod.ready:
            # What ails a pod of an earlier revision says nothing of the present one, which may be the repair.
            passing = not current or _is_outdated(facts, pod)
            for finding in _pod_findings(facts, pod):
                yield replace(finding, passing=True) if passing else finding


def _pod_findings(facts: Facts, pod: Pod) -> Iterator[Finding]:
    yield from pods.find(facts, pod)
    if pod.deleted is None and pod.phase != "Failed":
        for container in pod.containers:
            yield from images.find(facts, pod, container)
            yield from containers.find(facts, pod, container)


def _is_current(facts: Facts) -> bool:
    """Whether what is there was made from this very specification."""
    found = facts.snapshot.statefulset
    if found is None or found.deleted is not None:
        return True
    seen = found.generation <= 1 or found.observed_generation >= found.generation
    return seen and found.digest == facts.digest


def _is_outdated(facts: Facts, pod: Pod) -> bool:
    found = facts.snapshot.statefulset
    # Without a revision nothing was updated yet.
    return found is not None and found.update_revision not in ("", pod.revision) and pod.revision != ""


def _is_final(finding: Finding, facts: Facts, graces: Mapping[str, float]) -> bool:
    grace = graces.get(finding.reason)
    if grace is None or finding.passing:
        return False
    if finding.certain:
        return True
    return finding.since is not None and (facts.now - finding.since).total_seconds() >= grace


def _order(item: tuple[Finding, bool]) -> tuple[bool, int, datetime, str, str, str]:
    finding, final = item
    return not final, _RANK[finding.reason], finding.since or _END, finding.subject, finding.summary, finding.detail


def _unreachable(snapshot: Snapshot, known: str) -> Finding:
    summary = f"what is known of the cluster is not fresh: {snapshot.stale_reason}"
    return Finding(UNREACHABLE, "cluster", summary, detail=f"last known: {known}" if known else "")


def diagnose(
    snapshot: Snapshot,
    spec: DataServiceSpec,
    now: datetime,
    logs: Mapping[str, str] = _NOTHING,
    *,
    graces: Mapping[str, float] = GRACES,
    digest: str | None = None,
) -> Diagnosis | None:
    """The most important reason why a service is not ready.

    Args:
        snapshot: What there is.
        spec: What is wanted.
        now: The time, with a time zone.
        logs: Last lines of logs, by pod name: of those that an earlier
            diagnosis of the same state asked for (`wants_logs`).
        graces: Seconds after which each reason is final; a reason that is
            absent never is.
        digest: Hash of the specification that was applied; by default that
            of `spec`. They differ when replicas are counted as somebody else
            scaled them.

    Returns:
        None when nothing is known to be wrong: it is ready, or simply starting.
    """
    facts = Facts(snapshot, spec, now, logs, spec.digest() if digest is None else digest)
    found = [(finding, _is_final(finding, facts, graces)) for finding in _findings(facts)]
    if not snapshot.fresh:
        known = min(found, key=_order)[0].summary if found else ""
        found = [(_unreachable(snapshot, known), False)]
    if not found:
        return None
    finding, final = min(found, key=_order)
    rule = RULES[finding.reason]
    others = {other.subject for other, _ in found if other.reason == finding.reason} - {finding.subject}
    return Diagnosis(
        level="error" if final or not (rule.waiting_helps or finding.passing) else "warning",
        reason=finding.reason,
        subject=finding.subject,
        summary=finding.summary + (f" (and {len(others)} more like it)" if others else ""),
        detail=finding.detail,
        hint=finding.hint or rule.hint,
        final=final,
        waiting_helps=rule.waiting_helps,
        since=finding.since,
        wants_logs=finding.wants_logs,
    )
