"""`provisioner apply`: bring services to what files say."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from provisioner.cli.options import (
    DomainOption,
    FilesOption,
    NamespaceOption,
    ProjectOption,
    ReplaceOption,
    TimeoutOption,
    WaitOption,
)
from provisioner.cli.output import Exit, Format, FormatOption, note, print_problem, print_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provisioner.cli.session import Session
    from provisioner.control.request import ServiceRequest
    from provisioner.control.status import Status


_VERDICT_SECONDS = 5.0


def apply(
    filename: FilesOption,
    replace: ReplaceOption = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Create or update services from files.

    What is there already and is as the file says is left alone.

    Exit code 3: not all are ready yet. 4: something would be replaced, or belongs to somebody else.
    """
    from provisioner.cli.files import read_documents
    from provisioner.cli.session import Session

    session = Session(namespace, project, domain)
    requests = [session.request(document, replace=replace) for document in read_documents(filename)]
    return carry_out(session, requests, wait=wait, timeout=timeout, output=output)


def carry_out(
    session: Session,
    requests: Sequence[ServiceRequest],
    *,
    wait: bool,
    timeout: float | None,
    output: Format,
    repair: bool = False,
) -> int:
    """Apply requests, show the way, print the result.

    Args:
        session: What to work with.
        requests: For different services.
        wait: Until each is ready; else until each is applied.
        timeout: Longest wait in seconds; each one's start deadline when None.
        output: How the result is printed.
        repair: Whether what others changed is put right too.

    Returns:
        The exit code.

    Raises:
        RefusedError: One of them must not be carried out; none is, then.
    """
    _check(session, requests)
    statuses = _run(session, requests, wait=wait, timeout=timeout, repair=repair)
    rows = [_row(request, statuses[request.stack]) for request in requests]
    if output is Format.TABLE:
        shown = [
            {**row, "ready": f"{row['ready']}/{row['wanted']}", "changes": counted(row["changes"])} for row in rows
        ]
        columns = {key: key for key in ("name", "namespace", "ready", "status", "changes")}
        print_result(shown, output, columns=columns)
    else:
        print_result(rows, output)
    _tell_dropped(session, requests)
    return _conclude(requests, statuses, wait=wait)


def _tell_dropped(session: Session, requests: Sequence[ServiceRequest]) -> None:
    from provisioner.control.dropped import dropped

    for request in requests:
        identity = request.identity
        # Only a specification that says so is worth a question.
        if request.spec.max_unavailable is not None:
            for sentence in dropped(
                request.spec, session.live.get("StatefulSet", identity.namespace, identity.service)
            ):
                note(f"note: {identity.service}: {sentence}")


def _check(session: Session, requests: Sequence[ServiceRequest]) -> None:
    """Refuse all before the first is begun."""
    from provisioner.control.admission import check_names, way
    from provisioner.control.recorded import recorded
    from provisioner.errors import RefusedError, UsageError
    from provisioner.replacement import lost_volumes

    stacks = [request.stack for request in requests]
    for request in requests:
        if stacks.count(request.stack) > 1:
            raise UsageError(f"service {request.identity.service} of {request.identity.namespace} is declared twice")
    refused = []
    for request in requests:
        try:
            record = recorded(session.engine.state.checkpoint(request.stack))
            way(record, request)
            check_names(session.cluster.foreign(request.identity))
        except RefusedError as error:
            refused.append(error)
            continue
        for volume in lost_volumes(request.identity, record.spec, request.spec) if record else ():
            note(f"note: volume to be deleted: {volume}")
    if refused:
        message = "; ".join(error.message for error in refused)
        raise RefusedError(message, reason=refused[0].reason, hint=refused[0].hint)


def _run(
    session: Session, requests: Sequence[ServiceRequest], *, wait: bool, timeout: float | None, repair: bool
) -> dict[str, Status]:
    from provisioner.cli import waiting
    from provisioner.control.controller import Controller
    from provisioner.control.status import Phase

    controller = Controller.from_settings(
        session.settings, sorted({request.identity.namespace for request in requests})
    )

    def done(status: Status) -> bool:
        return status.final or (not wait and status.phase is Phase.STARTING)

    # The start deadline is judged by control; this is only the end of the wait for its verdict.
    limits = {r.stack: r.spec.start_deadline + _VERDICT_SECONDS if timeout is None else timeout for r in requests}
    names = {request.stack: request.identity.service for request in requests}
    controller.start()
    try:
        for request in requests:
            controller.repair(request) if repair else controller.ensure(request)
        found = waiting.wait(
            {request.stack: _look(controller, request) for request in requests},
            done,
            {stack: time.monotonic() + seconds for stack, seconds in limits.items()},
            names,
        )
    finally:
        controller.stop(session.settings.cancel_grace)
    return found


def _look(controller: Any, request: ServiceRequest) -> Any:
    return lambda: controller.observe(request)


def _row(request: ServiceRequest, status: Status) -> dict[str, Any]:
    return {
        "name": request.identity.service,
        "namespace": request.identity.namespace,
        "stack": status.stack,
        "ready": status.ready,
        "wanted": status.wanted,
        "status": status.phase.value,
        "reason": status.reason,
        "message": status.message,
        "hint": status.hint,
        "changes": list(status.changes),
    }


def counted(changes: Sequence[str]) -> str:
    """How many objects were changed in which way.

    Args:
        changes: One line per object, its verb first.

    Example:
        >>> counted(["create Service a", "create StatefulSet a"])
        '2 created'
    """
    verbs: dict[str, int] = {}
    for change in changes:
        verb = change.partition(" ")[0]
        verbs[verb] = verbs.get(verb, 0) + 1
    return ", ".join(f"{count} {verb}d" for verb, count in verbs.items()) or "none"


def _conclude(requests: Sequence[ServiceRequest], statuses: dict[str, Status], *, wait: bool) -> int:
    from provisioner.control.admission import REFUSALS
    from provisioner.control.status import Phase

    code = Exit.DONE
    for request in requests:
        status, name = statuses[request.stack], request.identity.service
        if status.phase is Phase.FAILED:
            print_problem(f"{name}: {status.reason}: {status.message}", status.hint)
            code = Exit.REFUSED if status.reason in REFUSALS else Exit.FAILED
        elif wait and status.phase is not Phase.READY and code is Exit.DONE:
            begun = status.phase is Phase.STARTING
            hint = f"it goes on by itself: see `provisioner status {name}`" if begun else "apply it again to go on"
            print_problem(f"{name}: not ready yet: {status.message}", status.hint or hint)
            code = Exit.NOT_READY
    return code
