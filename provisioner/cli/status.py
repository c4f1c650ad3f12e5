"""`provisioner status`: how a service is, why it is not ready, and how each replica is; or how all are."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provisioner.cli.options import DomainOption, NamespaceOption, ProjectOption, complete_service
from provisioner.cli.output import Exit, Format, FormatOption, print_result, print_table
from provisioner.cli.text import age

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provisioner.cli.session import Found, Session
    from provisioner.cluster.objects import Pod
    from provisioner.control.controller import Controller
    from provisioner.control.status import Status

_SYNC_SECONDS = 20.0
_POLL_SECONDS = 0.3
_WATCH_SECONDS = 1.0
# A diagnosis may wait for the last lines of a log.
_SETTLE_SECONDS = 3.0


def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the service, or of its stack; without it, how all services are.",
            autocompletion=complete_service,
            show_default=False,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on and show each change, until Ctrl-C.")] = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Show how a service is, and why it is not ready; or how all are.

    Exit code 0: ready, or all are. 1: failed. 3: not ready yet.
    """
    from provisioner.cli.session import Session

    session = Session(namespace, project, domain)
    if name is None:
        return _all(session, namespace, project or domain, output, watch=watch)
    found = session.find(name)
    with _controller(session, found) as controller:
        known = _settled(session, found, controller)
        _print(describe(session, found, known), output, lines=watch)
        while watch:
            time.sleep(_WATCH_SECONDS)
            found = session.find(found.identity.stack)
            now = look(session, found, controller)
            if now != known:
                known = now
                _print(describe(session, found, known), output, lines=True)
    return _exit_code(known)


def _all(session: Session, namespace: str | None, whose: str | None, output: Format, *, watch: bool) -> int:
    from provisioner.cli.overview import show_all
    from provisioner.errors import UsageError

    if whose is not None:
        raise UsageError(
            "without a name, --project and --domain choose nothing",
            hint="`provisioner list` shows the services of a project or domain",
        )
    return show_all(session.settings, namespace, output, watch=watch)


@contextmanager
def _controller(session: Session, found: Found) -> Iterator[Controller]:
    from provisioner.control.controller import Controller

    controller = Controller.from_settings(session.settings, [found.identity.namespace])
    controller.start()
    try:
        yield controller
    finally:
        controller.stop(session.settings.cancel_grace)


def look(session: Session, found: Found, controller: Controller) -> Status:
    """How a service is; waits until the watch has heard of the cluster.

    Args:
        session: What to work with.
        found: The service.
        controller: Started, for its namespace.

    Raises:
        TransientError: The cluster is not heard of.
    """
    from provisioner.control.status import Phase, Status
    from provisioner.errors import TransientError

    identity = found.identity
    if session.live.statefulset(identity) is None:
        return Status(
            identity.stack,
            Phase.FAILED,
            reason="NotInCluster",
            message="its stack is recorded, but nothing of it is in the cluster",
            hint="apply it again; or forget it, if its cluster is gone for good",
            wanted=found.record.spec.replicas if found.record else 0,
        )
    deadline = time.monotonic() + _SYNC_SECONDS
    while True:
        try:
            if controller.ready():
                return controller.sharing.attached(identity.namespace, identity.service, None)
        except TransientError:
            if time.monotonic() >= deadline:
                raise
        if time.monotonic() >= deadline:
            raise TransientError(
                "the cluster's objects could not be listed in time",
                reason="NotSynced",
                hint="see `provisioner doctor` for what is missing",
            )
        time.sleep(_POLL_SECONDS)


def _settled(session: Session, found: Found, controller: Controller) -> Status:
    """How a service is, with the log lines that explain it."""
    from provisioner.control.status import Phase

    deadline = time.monotonic() + _SETTLE_SECONDS
    known = look(session, found, controller)
    while known.phase is Phase.STARTING and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        now = look(session, found, controller)
        if now == known:
            break
        known = now
    return known


def describe(session: Session, found: Found, known: Status) -> dict[str, Any]:
    """All that is shown of a service, as plain data.

    Args:
        session: What to work with.
        found: The service.
        known: Its status.
    """
    identity, record = found.identity, found.record
    now = datetime.now(UTC)
    pods = sorted(session.live.pods(identity), key=lambda pod: pod.ordinal)
    return {
        "name": identity.service,
        "namespace": identity.namespace,
        "stack": identity.stack,
        "project": identity.project,
        "domain": identity.domain,
        "execution": identity.owner or None,
        "image": record.spec.image if record else None,
        "specHash": record.spec.digest() if record else None,
        "applied": record.applied if record else False,
        "status": known.phase.value,
        "ready": known.ready,
        "wanted": known.wanted,
        "reason": known.reason,
        "message": known.message,
        "hint": known.hint,
        "endpoints": [str(endpoint) for endpoint in known.endpoints],
        "replicas": [_replica(pod, now) for pod in pods],
    }


def _replica(pod: Pod, now: datetime) -> dict[str, Any]:
    return {
        "pod": pod.name,
        "ready": pod.ready,
        "status": pod_state(pod),
        "restarts": sum(container.restarts for container in pod.containers),
        "node": pod.node or None,
        "age": age(pod.created, now),
    }


def pod_state(pod: Pod) -> str:
    """The state of a pod in one word, as kubectl says it.

    Args:
        pod: Which.
    """
    if pod.deleted is not None:
        return "Terminating"
    for container in pod.containers:
        if container.waiting_reason:
            return container.waiting_reason
        if container.terminated is not None and not container.init:
            return container.terminated.reason or f"ExitCode:{container.terminated.exit_code}"
    return pod.reason or pod.phase or "Unknown"


def _print(document: dict[str, Any], output: Format, *, lines: bool) -> None:
    if output is not Format.TABLE:
        print_result(document, output, more=lines)
        return
    whose = ":".join(part for part in (document["project"], document["domain"], document["execution"]) if part)
    facts = {
        "service": f"{document['name']} (namespace {document['namespace']}, stack {document['stack']})",
        "owner": whose,
        "image": document["image"] or "<none>",
        "status": f"{document['status']}, {document['ready']}/{document['wanted']} replicas ready",
    }
    if not document["applied"]:
        facts["record"] = "not applied yet: its engine waits, is at work, or was stopped"
    if document["reason"] or document["status"] != "Ready":
        facts["reason"] = document["reason"] or "<none>"
        facts["message"] = document["message"].replace("\n", "\n          ")
    if document["hint"]:
        facts["hint"] = document["hint"]
    for key, value in facts.items():
        typer.echo(f"{key + ':':<10}{value}")
    if document["replicas"]:
        typer.echo("")
        columns = ("pod", "ready", "status", "restarts", "node", "age")
        print_table(columns, [[_cell(row[column]) for column in columns] for row in document["replicas"]])
    if lines:
        typer.echo("")


def _cell(value: Any) -> Any:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _exit_code(known: Status) -> int:
    from provisioner.control.status import Phase

    if known.phase is Phase.READY:
        return Exit.DONE
    return Exit.FAILED if known.phase is Phase.FAILED else Exit.NOT_READY
