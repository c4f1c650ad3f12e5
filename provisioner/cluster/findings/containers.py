"""Containers that do not start, or do not stay."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta

from provisioner.cluster.findings.finding import Facts, Finding, brief, clean, named, part, tail
from provisioner.cluster.objects import Container, Event, Pod, PodRef, Termination

# Kubelet forgets its back-off after a container has run for this long (container MaxContainerBackOff x 2).
_LOOP_ENDS = timedelta(minutes=10)
# As many starts in a row are no accident.
_CERTAIN_RESTARTS = 3
# Between a probe's last failure and the end of what it had killed lies the grace period; kubelet's own default.
_KILL = timedelta(seconds=35)
_LOG_LINES = 10
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun", "ContainerStatusUnknown"})
_OCI = "unable to start container process: "
_SHELL = {126: "the command is not executable", 127: "the command was not found"}


def find(facts: Facts, pod: Pod, container: Container) -> Iterator[Finding]:
    """Why a container is not running, or not for long.

    Args:
        facts: What is known.
        pod: The pod.
        container: One of its containers.
    """
    waiting = container.waiting_reason
    if waiting in ("CreateContainerConfigError", "CreateContainerError"):
        yield _not_created(facts, pod, container)
        return
    ended = container.terminated or container.last
    if ended is None:
        if waiting in ("RunContainerError", "PostStartHookError", "PreCreateHookError", "PreStartHookError"):
            yield _not_started(facts, pod, container, container.waiting_message)
        return
    if container.ready or (container.init and ended.exit_code == 0):
        return
    if ended.reason in _NOT_STARTED or waiting == "RunContainerError":
        yield _not_started(facts, pod, container, ended.message or container.waiting_message)
    else:
        yield _crashed(facts, pod, container, ended)


def _not_created(facts: Facts, pod: Pod, container: Container) -> Finding:
    said = clean(container.waiting_message)
    config = container.waiting_reason == "CreateContainerConfigError"
    return Finding(
        "ConfigMissing" if config else "ContainerCreateFailed",
        subject=named(pod),
        summary=f"{part(container)} of {named(pod)} cannot be created: {brief(said) or container.waiting_reason}",
        detail=said,
        since=facts.first_seen(pod, ("Failed",)),
    )


def _not_started(facts: Facts, pod: Pod, container: Container, said: str) -> Finding:
    command = " ".join((*facts.spec.command, *facts.spec.args)) if not container.init else ""
    asked = f" (command {brief(command, 100)!r})" if command else ""
    why = brief(said.rpartition(_OCI)[2].removesuffix(": unknown")) if _OCI in said else tail(said, parts=3)
    return Finding(
        "ContainerStartFailed",
        subject=named(pod),
        summary=f"{part(container)} of {named(pod)} cannot be started{asked}: {why}",
        detail=clean(said),
        since=facts.first_seen(pod, ("Failed", "BackOff")),
        certain=container.restarts >= _CERTAIN_RESTARTS,
    )


def _exit(ended: Termination) -> str:
    """How a container ended, in words."""
    number = ended.signal or (ended.exit_code - 128 if 128 < ended.exit_code < 160 else 0)
    try:
        name = f" ({signal.Signals(number).name})" if number else ""
    except ValueError:
        name = f" (signal {number})"
    shell = f" ({_SHELL[ended.exit_code]})" if ended.exit_code in _SHELL else ""
    return f"exit code {ended.exit_code}{name}{shell}"


def _loop_since(facts: Facts, pod: Pod, ended: Termination) -> datetime | None:
    """When the row of crashes began that this one belongs to."""
    if ended.started_at and ended.finished_at and ended.finished_at - ended.started_at > _LOOP_ENDS:
        return ended.finished_at
    first = facts.first_seen(pod, ("BackOff",)) if facts.events(pod, "BackOff") else ended.finished_at
    return first or pod.created


def _killed_by_probe(facts: Facts, pod: Pod, ended: Termination) -> Event | None:
    """The failed probe because of which kubelet ended a container."""
    for event in reversed(facts.events(pod, "Unhealthy")):
        if not event.message.startswith(("Liveness", "Startup")) or event.last is None:
            continue
        begin, end = ended.started_at, ended.finished_at
        if begin is not None and end is not None and begin <= event.last <= end + _KILL:
            return event
    return None


def _log(facts: Facts, pod: Pod, container: Container, ended: Termination) -> tuple[str, PodRef | None]:
    """The last lines that a container wrote, or where they can be read."""
    # With terminationMessagePolicy FallbackToLogsOnError they are part of the status already.
    text = facts.logs.get(pod.name, "") or ended.message
    if text:
        return clean("\n".join(text.rstrip().splitlines()[-_LOG_LINES:])), None
    if pod.name in facts.logs:
        return "", None
    previous = container.terminated is None
    return "", PodRef(pod.namespace, pod.name, container.name, previous=previous)


def _crashed(facts: Facts, pod: Pod, container: Container, ended: Termination) -> Finding:
    who, how = f"{part(container)} of {named(pod)}", _exit(ended)
    probe = _killed_by_probe(facts, pod, ended)
    lines, wanted = _log(facts, pod, container, ended)
    again = f", {container.restarts} restarts so far" if container.restarts > 1 else ""
    hint = ""
    if ended.reason == "OOMKilled":
        limit = facts.spec.resources.limits.get("memory")
        reason = "OutOfMemory"
        sentence = f"was killed for want of memory{f' (limit {limit})' if limit else ''}, {how}{again}"
    elif probe is not None:
        reason = "LivenessProbeFailed" if probe.message.startswith("Liveness") else "StartupProbeFailed"
        sentence = f"was ended by kubelet: {brief(probe.message)}; {how}{again}"
    elif container.init:
        reason, sentence = "InitContainerFailed", f"ended with {how}{again}"
    else:
        reason, sentence = "CrashLoop", f"ended with {how}{again}"
        if ended.exit_code == 0:
            hint = "a data service must not end by itself: does its command go into the background?"
    last = lines.splitlines()[-1] if lines else ""
    return Finding(
        reason,
        subject=named(pod),
        summary=f"{who} {sentence}" + (f"; last line: {brief(last, 200)}" if last else ""),
        detail=lines,
        hint=hint,
        since=_loop_since(facts, pod, ended),
        certain=container.restarts >= _CERTAIN_RESTARTS and not _ran_long(ended),
        passing=container.running_since is not None,
        wants_logs=wanted,
    )


def _ran_long(ended: Termination) -> bool:
    return bool(ended.started_at and ended.finished_at and ended.finished_at - ended.started_at > _LOOP_ENDS)
