"""`provisioner preview`: what an apply would change, before it does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from provisioner.cli.options import DomainOption, FilesOption, NamespaceOption, ProjectOption
from provisioner.cli.output import Exit, Format, FormatOption, print_result

if TYPE_CHECKING:
    from provisioner.cli.session import Session
    from provisioner.control.plan import ObjectChange, Plan
    from provisioner.control.request import ServiceRequest
    from provisioner.difference import FieldChange

_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "replace": ("!", "red"), "delete": ("-", "red")}
_SAID = {
    "create": "to be created",
    "update": "changed in place",
    "replace": "to be replaced",
    "delete": "to be deleted",
}
_LONGEST_VALUE = 120


def preview(
    filename: FilesOption,
    replace: Annotated[bool, typer.Option("--replace", help="Preview an apply with --replace.")] = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Show what an apply would change, field by field.

    Exit code 0: nothing would be changed. 3: something would.
    """
    from provisioner.cli.files import read_documents
    from provisioner.cli.session import Session

    session = Session(namespace, project, domain)
    requests = [session.request(document, replace=replace) for document in read_documents(filename)]
    plans = [plan_of(session, request) for request in requests]
    show(plans, output)
    return Exit.NOT_READY if any(plan.changed for plan in plans) else Exit.DONE


def plan_of(session: Session, request: ServiceRequest) -> Plan:
    """Ask the engine what an apply would change.

    Args:
        session: What to work with.
        request: What would be applied.

    Raises:
        RefusedError: The service would touch what belongs to somebody else.
        ProvisionerError: The engine or the cluster cannot tell.
    """
    from provisioner.control.admission import check_names
    from provisioner.control.plan import plan
    from provisioner.control.recorded import recorded

    checkpoint = session.engine.state.checkpoint(request.stack)
    check_names(session.cluster.foreign(request.identity))
    stack = session.engine.stack(request.stack)
    summary = stack.preview(session.operations.program(request, checkpoint))
    return plan(recorded(checkpoint), request, summary)


def show(plans: list[Plan], output: Format) -> None:
    """Print plans.

    Args:
        plans: One per service.
        output: A readable diff for `table`.
    """
    if output is not Format.TABLE:
        print_result([_document(plan) for plan in plans], output)
        return
    console = Console(highlight=False, soft_wrap=True)
    for plan in plans:
        for line in _lines(plan):
            console.print(line)


def _lines(plan: Plan) -> list[Text]:
    identity = plan.identity
    lines = [Text(f"service {identity.service} (namespace {identity.namespace}, stack {identity.stack})", "bold")]
    if not plan.changed:
        return [*lines, Text("  no change")]
    for change in plan.changes:
        sign, style = _SIGNS[change.action]
        lines.append(Text(f"{sign} {change.kind} {change.name}: {_SAID[change.action]}", style))
        lines += [Text(f"    {_field(field)}") for field in change.fields]
    if plan.replacements:
        lines.append(Text("! replaced, since Kubernetes cannot change in place:", "red"))
        lines += [Text(f"    {replacement}") for replacement in plan.replacements]
    if plan.lost:
        lines.append(Text(f"! {_count(len(plan.lost), 'volume')} lost, with the data:", "red"))
        lines += [Text(f"    {volume}") for volume in plan.lost]
    lines.append(Text(_summary(plan)))
    if not plan.allowed:
        lines.append(Text("an apply of this is refused unless it says --replace", "red"))
    return lines


def _field(change: FieldChange) -> str:
    if change.old is None and change.new is None:
        return change.path
    return f"{change.path}: {_value(change.old)} -> {_value(change.new)}"


def _value(value: Any) -> str:
    if value is None:
        return "<none>"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _summary(plan: Plan) -> str:
    counts = {action: sum(change.action == action for change in plan.changes) for action in _SIGNS}
    told = [f"{count} {_SAID[action]}" for action, count in counts.items() if count]
    return f"{', '.join(told)}; nothing was changed yet"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _document(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.identity.service,
        "namespace": plan.identity.namespace,
        "stack": plan.identity.stack,
        "changed": plan.changed,
        "needsReplace": not plan.allowed,
        "replacements": [{"field": item.field, "why": item.why} for item in plan.replacements],
        "lostVolumes": [{"claim": item.claim, "size": item.size, "why": item.why} for item in plan.lost],
        "changes": [_change_document(change) for change in plan.changes],
    }


def _change_document(change: ObjectChange) -> dict[str, Any]:
    return {
        "action": change.action,
        "kind": change.kind,
        "name": change.name,
        "fields": [{"path": field.path, "old": field.old, "new": field.new} for field in change.fields],
    }
