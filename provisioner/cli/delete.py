"""`provisioner delete`: remove services, and with `--volumes` the data that they keep."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.cli.options import (
    DomainOption,
    NamespaceOption,
    ProjectOption,
    TimeoutOption,
    WaitOption,
    complete_service,
)
from provisioner.cli.output import Exit, Format, FormatOption, note, print_problem, print_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from provisioner.cli.session import Session
    from provisioner.control.request import ServiceRequest
    from provisioner.control.status import Status

_TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.5


def delete(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Services, or their stacks.", autocompletion=complete_service),
    ] = None,
    filename: Annotated[
        list[Path] | None,
        typer.Option("--filename", "-f", metavar="FILE", help="Delete the services of this file. Repeatable."),
    ] = None,
    volumes: Annotated[
        bool, typer.Option("--volumes", help="Also the volumes that the service's retention policy keeps.")
    ] = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Delete services; verify that nothing is left."""
    from provisioner.cli.session import Session
    from provisioner.errors import UsageError

    session = Session(namespace, project, domain)
    requests = _requests(session, name or [], filename or [])
    if not requests:
        raise UsageError("nothing to delete was named", hint="give names, or files with -f")
    limit = time.monotonic() + (timeout if timeout is not None else _TIMEOUT_SECONDS)
    statuses = _remove(session, list(requests.values()), limit, wait=wait or volumes)
    kept = {stack: _volumes(session, request, limit, delete=volumes) for stack, request in requests.items()}
    rows = [
        {
            "name": request.identity.service,
            "namespace": request.identity.namespace,
            "stack": stack,
            "status": statuses[stack].phase.value,
            "message": statuses[stack].message,
            "volumes": list(kept[stack]),
        }
        for stack, request in requests.items()
    ]
    columns = {key: key for key in ("name", "namespace", "status", "message")}
    print_result(rows, output, columns=columns)
    return _conclude(requests, statuses, kept, wait=wait, volumes=volumes)


def _requests(session: Session, names: list[str], files: list[Path]) -> dict[str, ServiceRequest]:
    from provisioner.cli.files import read_documents

    requests = [_named(session, name) for name in names]
    requests += [session.request(document) for document in read_documents(files)]
    return {request.stack: request for request in requests}


def _named(session: Session, name: str) -> ServiceRequest:
    """The request of a service that is recorded, or of which at least something is in the cluster."""
    from provisioner.control.request import ServiceRequest
    from provisioner.errors import PermanentError
    from provisioner.spec import parse_spec

    # For a removal its specification does not matter.
    unknown = parse_spec({"image": "unknown", "ports": [{"name": "unknown", "port": 1}], "replicas": 0})
    try:
        found = session.find(name)
    except PermanentError as error:
        if error.reason != "NoSuchService":
            raise
        identity = session.identity(name)
        if session.cluster.remaining(identity) or session.live.claims(identity):
            return ServiceRequest(identity, unknown, time.time())
        raise
    return ServiceRequest(found.identity, found.record.spec if found.record else unknown, time.time())


def _remove(session: Session, requests: list[ServiceRequest], limit: float, *, wait: bool) -> dict[str, Status]:
    from provisioner.cli import waiting
    from provisioner.control.controller import Controller

    spaces = sorted({request.identity.namespace for request in requests})
    controller = Controller.from_settings(session.settings, spaces)

    def look(request: ServiceRequest) -> Callable[[], Status]:
        return lambda: controller.remove(request)

    def done(status: Status) -> bool:
        # Not to wait is to leave as soon as the cluster goes on by itself.
        return status.final or (not wait and not status.reason and not session.engine.state.exists(status.stack))

    controller.start()
    try:
        return waiting.wait(
            {request.stack: look(request) for request in requests},
            done,
            {request.stack: limit for request in requests},
            {request.stack: request.identity.service for request in requests},
        )
    finally:
        controller.stop(session.settings.cancel_grace)


def _volumes(session: Session, request: ServiceRequest, limit: float, *, delete: bool) -> tuple[str, ...]:
    """The claims that are left; none when they were to be deleted and are."""
    from provisioner.control.volumes import delete_volumes

    if not delete:
        return tuple(claim.name for claim in session.live.claims(request.identity) if not claim.going)
    while left := delete_volumes(session.live, request.identity):
        if time.monotonic() >= limit:
            return left
        time.sleep(_POLL_SECONDS)
    return ()


def _conclude(
    requests: dict[str, ServiceRequest],
    statuses: dict[str, Status],
    kept: dict[str, tuple[str, ...]],
    *,
    wait: bool,
    volumes: bool,
) -> int:
    from provisioner.control.status import Phase

    code = Exit.DONE
    for stack, request in requests.items():
        name, known = request.identity.service, statuses[stack]
        if known.phase is not Phase.GONE and (wait or known.reason):
            hint = known.hint or f"repeat `provisioner delete {name}` to go on"
            print_problem(f"{name}: not gone yet: {known.message}", hint)
            code = Exit.NOT_READY
        if kept[stack] and volumes:
            print_problem(f"{name}: volumes still there: {', '.join(kept[stack])}", "repeat with --volumes")
            code = Exit.NOT_READY
        elif kept[stack]:
            note(f"note: {name}: volumes kept: {', '.join(kept[stack])}; `--volumes` deletes them")
    return code
