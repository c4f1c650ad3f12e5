"""`provisioner list`, `outputs` and `events`: what there is, where it is, and what was said about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provisioner.cli.options import DomainOption, NameArgument, NamespaceOption, ProjectOption
from provisioner.cli.output import Format, FormatOption, print_result
from provisioner.cli.text import age

if TYPE_CHECKING:
    from provisioner.cluster.live import SpokenEvent


def list_services(
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List services.

    Those of all namespaces, projects and domains, unless one is named.
    """
    from provisioner.cli.session import Session
    from provisioner.control.inventory import Listed, inventory

    session = Session()
    found = inventory(session.engine.state, session.live, namespace)
    chosen = [
        item
        for item in found
        if namespace in (None, item.namespace) and project in (None, item.project) and domain in (None, item.domain)
    ]
    now = datetime.now(UTC)

    def row(item: Listed) -> dict[str, Any]:
        return {
            "name": item.service,
            "namespace": item.namespace,
            "project": item.project,
            "domain": item.domain,
            "execution": item.owner or None,
            "stack": item.stack,
            "ready": item.ready,
            "wanted": item.wanted,
            "status": item.state.value,
            "created": item.created.isoformat() if item.created else None,
        }

    if output is not Format.TABLE:
        print_result([row(item) for item in chosen], output)
        return
    shown = [
        row(item) | {"ready": f"{item.ready}/{item.wanted}", "age": age(item.created, now), "owner": item.whose}
        for item in chosen
    ]
    columns = {key: key for key in ("name", "namespace", "owner", "ready", "status", "age")}
    print_result(shown, output, columns=columns, empty="no services")


def outputs(
    name: NameArgument,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Print where a service and its replicas are."""
    from provisioner.cli.session import Session
    from provisioner.errors import PermanentError

    session = Session(namespace, project, domain)
    found = session.find(name)
    values = dict(found.checkpoint.outputs)
    if not values:
        raise PermanentError(
            f"service {found.identity.service} was not applied yet, so it has no outputs",
            reason="NotApplied",
            hint=f"see `provisioner status {name}`",
        )
    if output is not Format.TABLE:
        print_result(values, output)
        return
    rows = [
        {"output": key, "value": item}
        for key, value in values.items()
        for item in (value if isinstance(value, list) else [_plain(value)])
    ]
    print_result(rows, output)


def _plain(value: Any) -> Any:
    return ", ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else value


def events(
    name: NameArgument,
    warnings: Annotated[bool, typer.Option("--warnings", help="Only those of type Warning.")] = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List what the cluster said about a service.

    Kubernetes keeps events for an hour. The newest stands last.
    """
    from provisioner.cli.session import Session

    session = Session(namespace, project, domain)
    found = [spoken for spoken in session.live.events(session.find(name).identity) if spoken.warning or not warnings]
    now = datetime.now(UTC)
    rows = [_event(spoken, now) for spoken in found]
    columns = {"last seen": "age", "type": "type", "reason": "reason", "object": "object", "message": "message"}
    print_result(rows, output, columns=columns, empty="no events")


def _event(spoken: SpokenEvent, now: datetime) -> dict[str, Any]:
    event = spoken.event
    return {
        "age": age(event.last, now),
        "last": event.last.isoformat() if event.last else None,
        "type": "Warning" if spoken.warning else "Normal",
        "reason": event.reason,
        "object": f"{event.kind.lower()}/{event.object}",
        "count": event.count,
        "message": " ".join(event.message.split()),
    }
