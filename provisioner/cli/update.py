"""`provisioner scale`, `rollback` and `history`: change a service without its file."""

from __future__ import annotations

from dataclasses import replace as changed
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.cli.options import (
    DomainOption,
    NameArgument,
    NamespaceOption,
    ProjectOption,
    ReplaceOption,
    TimeoutOption,
    WaitOption,
)
from provisioner.cli.output import Format, FormatOption, note, print_result
from provisioner.cli.text import age

if TYPE_CHECKING:
    from provisioner.control.request import ServiceRequest
    from provisioner.spec import DataServiceSpec


def scale(
    name: NameArgument,
    replicas: Annotated[int, typer.Option("--replicas", min=0, max=10_000, help="How many; 0 pauses the service.")],
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Change the number of a service's replicas."""
    from provisioner.cli.apply import carry_out
    from provisioner.cli.session import Session
    from provisioner.errors import RefusedError

    session = Session(namespace, project, domain)
    request = session.find(name).request()
    if "replicas" in request.spec.drift.ignore:
        raise RefusedError(
            f"the replicas of {request.identity.service} are left to somebody else (drift.ignore)",
            reason="LeftToOthers",
            hint="scale it with the autoscaler that has them, or take replicas out of drift.ignore",
        )
    wanted = _with(request, request.spec.model_copy(update={"replicas": replicas}))
    return carry_out(session, [wanted], wait=wait, timeout=timeout, output=output)


def rollback(
    name: NameArgument,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="REVISION", help="Which; else the one before this.", show_default=False),
    ] = None,
    replace: ReplaceOption = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Bring back an earlier specification."""
    from provisioner.cli.apply import carry_out
    from provisioner.cli.session import Session
    from provisioner.control.revisions import choose, revisions

    session = Session(namespace, project, domain)
    request = session.find(name).request()
    known = revisions(session.engine.state.history(request.stack))
    revision = choose(known, request.spec, to, request.identity.service)
    note(f"going back to revision {revision.digest} (image {revision.spec.image}, {revision.spec.replicas} replicas)")
    wanted = changed(_with(request, revision.spec), replace=replace)
    return carry_out(session, [wanted], wait=wait, timeout=timeout, output=output)


def history(
    name: NameArgument,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the specifications that a service had."""
    from provisioner.cli.session import Session
    from provisioner.control.revisions import revisions

    session = Session(namespace, project, domain)
    found = session.find(name)
    current = found.record.spec.digest() if found.record else None
    now = datetime.now(UTC)
    rows = [
        {
            "revision": revision.digest,
            "current": "yes" if revision.digest == current else "",
            "age": age(revision.applied, now),
            "image": revision.spec.image,
            "replicas": revision.spec.replicas,
            **({"spec": revision.spec.document()} if output is not Format.TABLE else {}),
        }
        for revision in revisions(session.engine.state.history(found.identity.stack))
    ]
    columns = {key: key for key in ("revision", "current", "age", "image", "replicas")}
    print_result(rows, output, columns=columns, empty="no revisions")


def _with(request: ServiceRequest, spec: DataServiceSpec) -> ServiceRequest:
    return changed(request, spec=spec)
