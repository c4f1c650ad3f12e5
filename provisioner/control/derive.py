"""From what the queue knows and what the cluster shows to one status: a pure function."""

from __future__ import annotations

from dataclasses import replace

from provisioner.cluster import Diagnosis, Readiness, Snapshot
from provisioner.cluster.readiness import counted
from provisioner.control.queue import Kind, View
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Endpoint, Phase, Status
from provisioner.errors import PermanentError
from provisioner.spec import format_duration


def as_scaled(request: ServiceRequest, snapshot: Snapshot) -> ServiceRequest:
    """What is wanted now: with an autoscaler's number of replicas, where the specification leaves it to one.

    Args:
        request: What was asked for.
        snapshot: What there is.
    """
    found = snapshot.statefulset
    if found is None or "replicas" not in request.spec.drift.ignore or found.replicas == request.spec.replicas:
        return request
    return replace(request, spec=request.spec.model_copy(update={"replicas": found.replicas}))


def endpoints(request: ServiceRequest) -> tuple[Endpoint, ...]:
    """Every port of every replica, replica by replica.

    Args:
        request: The service.
    """
    return tuple(
        Endpoint(ordinal, request.identity.replica_host(ordinal), port.port, port.name)
        for ordinal in range(request.spec.replicas)
        for port in request.spec.ports
    )


def derive(
    request: ServiceRequest,
    view: View,
    *,
    readiness: Readiness,
    diagnosis: Diagnosis | None,
    fresh: bool,
    now: float,
) -> Status:
    """The status of a service.

    Args:
        request: What is wanted.
        view: What the queue knows of its stack.
        readiness: What the cluster's objects say of it.
        diagnosis: What is wrong with those of this very specification, if
            anything is; they may be there before the stack is applied.
        fresh: Whether the cluster's state is recent; ready is never said of
            a state that is not.
        now: The time in seconds since the epoch.
    """
    if view.intent.kind is Kind.REMOVE:
        return _removal(request, view)
    if view.error is not None and (view.settled or isinstance(view.error, PermanentError)):
        return _failed(request, readiness, view.error.reason, view.error.message, view.error.hint)
    late = now >= request.deadline
    if not view.settled:
        broken = _broken(request, readiness, diagnosis, late=late) if fresh else None
        if broken is not None:
            return broken
        if late:
            cause = view.error.message if view.error else view.waiting
            detail = f": {cause}" if cause else ""
            return _too_late(
                request, readiness, f"its stack is not applied{detail}", view.error.hint if view.error else ""
            )
        return _on_the_way(request, readiness, view, diagnosis)
    return derive_cluster(
        request, readiness=readiness, diagnosis=diagnosis, fresh=fresh, late=late, changes=view.changes
    )


def derive_cluster(
    request: ServiceRequest,
    *,
    readiness: Readiness,
    diagnosis: Diagnosis | None,
    fresh: bool,
    late: bool,
    changes: tuple[str, ...] = (),
) -> Status:
    """The status of a service that was applied, from the cluster alone.

    Args:
        request: What is wanted.
        readiness: What the cluster's objects say of it.
        diagnosis: What is wrong with them, if anything is.
        fresh: Whether the cluster's state is recent.
        late: Whether its start deadline has passed.
        changes: What the last operation did.
    """
    if readiness.done and fresh:
        return Status(
            request.stack,
            Phase.READY,
            message=readiness.message,
            ready=readiness.ready,
            wanted=request.spec.replicas,
            endpoints=endpoints(request),
            changes=changes,
        )
    broken = _broken(request, readiness, diagnosis, late=late) if fresh else None
    if broken is not None:
        return replace(broken, changes=changes)
    if late and fresh:
        return replace(_too_late(request, readiness, readiness.message, ""), changes=changes)
    return Status(
        request.stack,
        Phase.STARTING,
        reason=diagnosis.reason if diagnosis else "",
        message=_said(diagnosis) if diagnosis else readiness.message,
        hint=diagnosis.hint if diagnosis else "",
        ready=readiness.ready,
        wanted=request.spec.replicas,
        changes=changes,
    )


def _removal(request: ServiceRequest, view: View) -> Status:
    wanted = request.spec.replicas
    if view.settled and view.error is None and view.users:
        return Status(request.stack, Phase.IN_USE, message=_used_by(view.users), wanted=wanted)
    if view.settled and view.error is None:
        return Status(request.stack, Phase.GONE, message="nothing of it is left", wanted=wanted)
    error = view.error
    message = error.message if error else view.waiting or "its removal is under way"
    return Status(
        request.stack,
        Phase.REMOVING,
        reason=error.reason if error else "",
        message=f"removal failed {view.failures} times, last: {message}" if view.stalled else message,
        hint=error.hint if error else "",
        wanted=wanted,
        stalled=view.stalled,
    )


def _used_by(users: tuple[str, ...]) -> str:
    others = f" and {len(users) - 1} more" if len(users) > 1 else ""
    return f"it stays, since {users[0]}{others} still uses it; it goes with its last user"


def _broken(request: ServiceRequest, readiness: Readiness, diagnosis: Diagnosis | None, *, late: bool) -> Status | None:
    """The failure that a diagnosis amounts to: it is final, or there is no time left to wait."""
    if diagnosis is not None and diagnosis.final:
        return _failed(request, readiness, diagnosis.reason, _said(diagnosis), diagnosis.hint)
    if diagnosis is not None and late:
        return _too_late(request, readiness, _said(diagnosis), diagnosis.hint)
    return None


def _on_the_way(request: ServiceRequest, readiness: Readiness, view: View, diagnosis: Diagnosis | None) -> Status:
    phase = Phase.QUEUED if view.running is None else Phase.APPLYING
    if view.error is not None:
        tried = f"failed {view.failures} time{'s' if view.failures > 1 else ''}"
        state = f"stalled, {tried} and is still tried" if view.stalled else f"to be tried again ({tried})"
        reason, message, hint = view.error.reason, f"{state}: {view.error.message}", view.error.hint
    else:
        reason, hint = (diagnosis.reason, diagnosis.hint) if diagnosis is not None else ("", "")
        message = view.waiting or ("waits for a worker" if phase is Phase.QUEUED else "its stack is being applied")
        if diagnosis is not None:
            message += f"; {_said(diagnosis)}"
        elif readiness.ready and not view.waiting:
            message += f"; {counted(readiness.ready, request.spec.replicas)}"
    return Status(
        request.stack,
        phase,
        reason,
        message,
        hint,
        ready=readiness.ready,
        wanted=request.spec.replicas,
        stalled=view.stalled,
    )


def _too_late(request: ServiceRequest, readiness: Readiness, cause: str, hint: str) -> Status:
    allowed = format_duration(request.spec.start_deadline)
    return _failed(
        request, readiness, "StartDeadlineExceeded", f"not ready within its start deadline of {allowed}: {cause}", hint
    )


def _failed(request: ServiceRequest, readiness: Readiness, reason: str, message: str, hint: str) -> Status:
    return Status(
        request.stack, Phase.FAILED, reason, message, hint, ready=readiness.ready, wanted=request.spec.replicas
    )


def _said(diagnosis: Diagnosis) -> str:
    """The cause in one line; below it the log, where there is more of it than the line that the cause quotes."""
    log = diagnosis.detail if "\n" in diagnosis.detail else ""
    return f"{diagnosis.summary}\n{log}" if log else diagnosis.summary
