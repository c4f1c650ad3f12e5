"""What keeps a service's objects from being made: namespace, quota, admission, claims."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from provisioner.cluster.findings.finding import Facts, Finding, brief, clean, tail
from provisioner.cluster.objects import Claim, Event, StatefulSet

# pkg/controller/statefulset/stateful_pod_control.go
_CREATE = re.compile(
    r"create (?:Pod|Claim) (?P<name>\S+).*? in StatefulSet \S+ failed error: (?P<why>.*)", re.DOTALL | re.IGNORECASE
)
_QUOTA = re.compile(r"exceeded quota: (?P<name>[^,\s]+)(?P<numbers>.*)", re.DOTALL)
_ACCOUNT = re.compile(r"service account (?P<name>\S+?):? .*not found|serviceaccount \"(?P<other>[^\"]+)\" not found")
_UNAVAILABLE = re.compile(r"failed calling webhook|failed to call webhook|context deadline exceeded", re.IGNORECASE)
_DENIED = re.compile(r"denied the request|denied request|violates PodSecurity|is forbidden|denied:", re.IGNORECASE)
_TERMINATING = "being terminated"


def _named(found: StatefulSet) -> str:
    return f"StatefulSet {found.namespace}/{found.name}"


def find(facts: Facts) -> Iterator[Finding]:
    """What is wrong with the service's objects other than its pods.

    Args:
        facts: What is known.
    """
    snapshot, found = facts.snapshot, facts.snapshot.statefulset
    if found is not None:
        if snapshot.namespace_deleted is not None:
            subject = f"namespace {found.namespace}"
            sentence = f"{subject} is being deleted, and {_named(found)} with it"
            yield Finding("NamespaceTerminating", subject, sentence, since=snapshot.namespace_deleted, certain=True)
        elif found.deleted is not None:
            sentence = f"{_named(found)} is still being deleted; it is made anew once it is gone"
            yield Finding("Terminating", _named(found), sentence, since=found.deleted)
        elif len(snapshot.pods) < facts.spec.replicas:
            yield from _creation(facts, found)
    for claim in snapshot.claims:
        yield from _claim(facts, claim)


def _creation(facts: Facts, found: StatefulSet) -> Iterator[Finding]:
    """The newest refusal of a pod or claim that does not exist by now."""
    exist = {pod.name for pod in facts.snapshot.pods} | {claim.name for claim in facts.snapshot.claims}
    events = facts.events(found, "FailedCreate")
    for event in reversed(events):
        match = _CREATE.search(event.message)
        if match is None or match["name"] not in exist:
            first = min((said.first for said in events if said.first is not None), default=None)
            yield _refused(found, event, match["why"] if match else event.message, first)
            return


def _refused(found: StatefulSet, event: Event, why: str, first: datetime | None) -> Finding:
    subject = _named(found)
    quota, account = _QUOTA.search(why), _ACCOUNT.search(why)
    if _TERMINATING in why:
        reason, sentence = "NamespaceTerminating", f"namespace {found.namespace} is being deleted"
    elif quota is not None:
        numbers = brief(quota["numbers"].strip(", "))
        reason, sentence = "QuotaExceeded", f"quota {quota['name']} of the namespace is used up ({numbers})"
    elif account is not None:
        name = (account["name"] or account["other"]).rpartition("/")[2]
        reason, sentence = "ServiceAccountMissing", f"service account {name!r} does not exist in {found.namespace}"
    elif _UNAVAILABLE.search(why):
        reason, sentence = "AdmissionUnavailable", f"an admission webhook does not answer: {tail(why, parts=3)}"
    elif _DENIED.search(why):
        reason, sentence = "AdmissionDenied", f"admission refuses its pods: {brief(why, 400)}"
    else:
        reason, sentence = "PodCreateFailed", f"its pods cannot be made: {brief(why, 400)}"
    summary = f"{subject} cannot make its pods: {sentence}"
    return Finding(reason, subject, summary, clean(event.message), since=first or event.first)


def _claim(facts: Facts, claim: Claim) -> Iterator[Finding]:
    if claim.phase == "Bound" or claim.deleted is not None:
        return
    subject = f"claim {claim.namespace}/{claim.name}"
    if claim.phase == "Lost":
        yield Finding("ClaimLost", subject, f"{subject} has lost its volume", since=claim.created, certain=True)
        return
    events = facts.events(claim)
    blocked = [
        condition
        for pod in facts.snapshot.pods
        if (condition := pod.condition("PodScheduled")) is not None
        and "persistent" in condition.message.lower()
        and not pod.node
    ]
    # A claim that waits for the first pod to be placed is as it should be.
    if not events and not blocked:
        return
    said = clean(events[-1].message if events else blocked[0].message)
    since = min((event.first for event in events if event.first is not None), default=claim.created)
    size = f" of {claim.requested}" if claim.requested else ""
    if not claim.storage_class:
        reason, why = "StorageClassMissing", "it names no storage class, and the cluster has no default one"
    elif "storageclass" in said and "not found" in said:
        reason, why = "StorageClassMissing", f"storage class {claim.storage_class!r} does not exist"
    else:
        told = f": {brief(said)}" if events else ", and no event says why"
        reason, why = "ClaimNotBound", f"there is no volume of storage class {claim.storage_class!r} for it yet{told}"
    yield Finding(reason, subject, f"{subject}{size} is not bound: {why}", said, since=since)
