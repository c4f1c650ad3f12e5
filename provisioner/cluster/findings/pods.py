"""Pods that find no node, lose theirs, or are not let in by what is around their containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from provisioner.cluster.findings.finding import Facts, Finding, brief, clean, named, part, tail
from provisioner.cluster.objects import Pod, PodRef

# kube-scheduler: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: ..."
_NODES = re.compile(r"0/(?P<total>\d+) nodes are available: (?P<why>.*)", re.DOTALL)
_AFTERTHOUGHT = re.compile(
    r"[.,]? *(no new claims to deallocate|preemption:|Preemption is not helpful|not found).*", re.DOTALL
)
_INSUFFICIENT = re.compile(r"Insufficient ([\w./-]+)")
_VOLUME = re.compile(r"persistentvolumeclaim|PersistentVolumeClaims|persistent volumes", re.IGNORECASE)
_SETTING_UP = frozenset({"ContainerCreating", "PodInitializing", ""})
_MOUNT = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOX = ("FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources")
# A deleted pod that is still there so long after its grace has a node that does not answer.
_OVERDUE = timedelta(seconds=30)
_RECENT = timedelta(minutes=10)


def find(facts: Facts, pod: Pod) -> Iterator[Finding]:
    """What is wrong with a pod as a whole.

    Args:
        facts: What is known.
        pod: The pod.
    """
    yield from _node_lost(facts, pod)
    if pod.phase == "Failed":
        yield _failed(pod)
    elif pod.deleted is None:
        yield from _unscheduled(facts, pod)
        yield from _setup(facts, pod)
        yield from _probe(facts, pod)
        yield from _evicted_before(facts, pod)


def _asked(facts: Facts, why: str) -> str:
    """What each replica asks for of the resources that are short."""
    short = dict.fromkeys(_INSUFFICIENT.findall(why))
    resources = facts.spec.resources
    asked = [
        f"{name} {resources.requests.get(name) or resources.limits.get(name)}"
        for name in short
        if name in resources.requests or name in resources.limits
    ]
    return f"; each replica asks for {', '.join(asked)}" if asked else ""


def _unscheduled(facts: Facts, pod: Pod) -> Iterator[Finding]:
    condition = pod.condition("PodScheduled")
    if condition is None or pod.node:
        return
    said, since = clean(condition.message), condition.since or pod.created
    if condition.reason == "SchedulingGated":
        yield Finding("SchedulingGated", named(pod), f"{named(pod)} is held back: {brief(said)}", said, since=since)
        return
    if _VOLUME.search(said):
        return  # its claim tells more, see `service`
    match = _NODES.search(said)
    why = _AFTERTHOUGHT.sub("", match["why"]).strip(" .") if match else said
    where = f"0 of {match['total']} nodes can run it" if match else "no node can run it"
    yield Finding(
        "Unschedulable",
        named(pod),
        f"{named(pod)} finds no node, {where}: {brief(why, 400)}{_asked(facts, why)}",
        said,
        since=since,
    )


def _setup(facts: Facts, pod: Pod) -> Iterator[Finding]:
    """Sandbox and volumes: what comes before any container."""
    if not pod.node or any(container.waiting_reason not in _SETTING_UP for container in pod.containers):
        return
    if any(container.running_since or container.terminated for container in pod.containers):
        return
    for reasons, reason, what in (
        (_SANDBOX, "SandboxFailed", "its sandbox cannot be made"),
        (_MOUNT, "MountFailed", "its volumes cannot be mounted"),
    ):
        events = facts.events(pod, *reasons)
        if events:
            yield Finding(
                reason,
                named(pod),
                f"{named(pod)} cannot start on node {pod.node}, {what}: {tail(events[-1].message)}",
                clean(events[-1].message),
                since=facts.first_seen(pod, reasons),
            )


def _probe(facts: Facts, pod: Pod) -> Iterator[Finding]:
    """A container that runs and fails its probe."""
    for container in pod.containers:
        if container.ready or container.running_since is None or container.init:
            continue
        events = [
            event
            for event in facts.events(pod, "Unhealthy", "ProbeWarning")
            if event.last is not None and event.last >= container.running_since
        ]
        if events:
            kind = events[-1].message.partition(" ")[0]
            reason = "ReadinessProbeFailed" if kind == "Readiness" else "ProbeFailing"
            yield Finding(
                reason,
                named(pod),
                f"{part(container)} of {named(pod)} runs but is not ready: {brief(events[-1].message)}",
                clean(facts.logs.get(pod.name, "")) or clean(events[-1].message),
                since=max(container.running_since, events[0].first or container.running_since),
                wants_logs=None if pod.name in facts.logs else PodRef(pod.namespace, pod.name, container.name),
            )


def _node_lost(facts: Facts, pod: Pod) -> Iterator[Finding]:
    disruption = pod.condition("DisruptionTarget")
    taken = disruption is not None and disruption.reason == "DeletionByTaintManager"
    overdue = pod.deleted is not None and facts.now - pod.deleted > _OVERDUE
    # The node controller sets the pod's condition, while the containers are as kubelet last reported them.
    silent = (
        not pod.ready
        and pod.phase == "Running"
        and bool(facts.events(pod, "NodeNotReady"))
        and all(container.ready or container.init for container in pod.containers)
    )
    if not (taken or overdue or silent or pod.reason == "NodeLost" or pod.phase == "Unknown"):
        return
    what = "does not answer" if not overdue or taken or silent else "has not ended it in time"
    ready = pod.condition("Ready")
    since = disruption.since if taken and disruption else ready.since if silent and ready else pod.deleted
    yield Finding(
        "NodeLost",
        named(pod),
        f"{named(pod)} is on node {pod.node}, which {what}",
        clean((disruption.message if disruption else "") or pod.message),
        since=since or pod.created,
    )


def _failed(pod: Pod) -> Finding:
    said = clean(pod.message)
    if pod.reason == "Evicted":
        return Finding("Evicted", named(pod), f"{named(pod)} was evicted from node {pod.node}: {brief(said)}", said)
    if pod.reason:
        return Finding(
            "PodRejected",
            named(pod),
            f"node {pod.node} does not take {named(pod)}: {pod.reason}: {brief(said)}",
            said,
            since=pod.created,
        )
    return Finding("PodFailed", named(pod), f"{named(pod)} has failed: {brief(said) or 'no reason given'}", said)


def _evicted_before(facts: Facts, pod: Pod) -> Iterator[Finding]:
    """An earlier pod of this name was evicted a short while ago, and its successor is not ready yet."""
    if pod.ready:
        return
    for event in reversed(facts.snapshot.events):
        earlier = event.kind == "Pod" and event.object == pod.name and event.uid not in ("", pod.uid)
        if earlier and event.reason in ("Evicted", "Preempted") and event.last and facts.now - event.last < _RECENT:
            yield Finding(
                "Evicted",
                named(pod),
                f"{named(pod)} is made anew, the one before it lost its node: {brief(event.message)}",
                clean(event.message),
                since=event.last,
                passing=True,
            )
            return
