"""What `provisioner gc` says of a sweep: tables within 80 columns, one JSON document, and what needs a person."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from provisioner.cli.output import WIDTH, note, print_table
from provisioner.cli.text import span

if TYPE_CHECKING:
    from provisioner.janitor.decision import Decision
    from provisioner.janitor.outcome import Report

_COLUMNS = ("stack", "age", "verdict", "reason")
# So many of one kind are named one by one; `-o json` has them all.
_NAMED = 5


def document(report: Report) -> dict[str, Any]:
    """The whole report as plain data: the format of `-o json`, which stays stable.

    Args:
        report: One sweep.
    """
    decisions = []
    for decision in report.plan.decisions:
        outcome = report.result(decision)
        decisions.append(
            {
                "stack": decision.stack,
                "owner": decision.owner or None,
                "ageSeconds": int(decision.age.total_seconds()) if decision.age is not None else None,
                "verdict": decision.verdict.value,
                "reason": decision.reason,
                "message": decision.message,
                "action": decision.action.value,
                "namespace": decision.namespace or None,
                "due": decision.due.isoformat() if decision.due is not None else None,
                "result": outcome.result.value if outcome is not None else None,
                "resultMessage": (outcome.message or None) if outcome is not None else None,
                "resultHint": (outcome.hint or None) if outcome is not None else None,
            }
        )
    return {
        "cluster": report.plan.cluster,
        "started": report.started.isoformat(timespec="seconds"),
        "seconds": round(report.seconds, 3),
        "dryRun": report.dry_run,
        "completion": report.completion.value,
        "refused": report.plan.refused or None,
        "brake": report.plan.brake or None,
        "checkpointsRead": report.checkpoints_read,
        "unlisted": list(report.unlisted),
        "summary": [
            {"verdict": verdict.value, "reason": reason, "count": count}
            for (verdict, reason), count in report.summary.items()
        ],
        "decisions": decisions,
    }


def print_tables(report: Report) -> None:
    """For people: in a dry run each stack, otherwise what was done or is to be; then the numbers.

    Args:
        report: One sweep.
    """
    from provisioner.janitor.decision import Action, Verdict

    rows: list[tuple[str, ...]] = []
    owners: list[str] = []
    for decision in report.plan.decisions:
        settled = decision.verdict is Verdict.KEEP and not decision.unsettled and decision.action is Action.NONE
        if settled and not report.dry_run:
            continue
        age = span(decision.age) if decision.age is not None else "<none>"
        row = (decision.stack, age, decision.verdict.value, decision.reason)
        outcome = report.result(decision)
        rows.append(row if report.dry_run else (*row, outcome.result.value if outcome else "-"))
        owners.append(decision.owner or "<none>")
    if rows:
        _print_stacks(_COLUMNS if report.dry_run else (*_COLUMNS, "result"), rows, owners)
        typer.echo()
    summary = [(verdict.value, reason, count) for (verdict, reason), count in report.summary.items()]
    if summary:
        print_table(("verdict", "reason", "count"), summary)
    else:
        note("no services")


def _print_stacks(columns: Sequence[str], rows: Sequence[tuple[str, ...]], owners: Sequence[str]) -> None:
    """With the owner beside the stack where all of it fits, else beneath: neither is ever cut."""
    whole = [(row[0], owner, *row[1:]) for row, owner in zip(rows, owners, strict=True)]
    headings = (columns[0], "owner", *columns[1:])
    widths = [max(map(len, column)) for column in zip(headings, *whole, strict=True)]
    if sum(widths) + 3 * (len(widths) - 1) <= WIDTH:
        print_table(headings, whole)
    else:
        print_table(columns, rows, beneath=[f"owner {owner}" if owner != "<none>" else "" for owner in owners])


def explain(report: Report) -> None:
    """Say to people what needs them: refusals, the brake, what stays although it may have to go, failures.

    Args:
        report: One sweep.
    """
    plan = report.plan
    if plan.refused:
        note(f"refused: {plan.refused}; nothing was done")
        note("hint: check the kubeconfig's context, and PROVISIONER_GC_CLUSTER")
    if plan.brake:
        note(f"brake: {plan.brake}")
        note("hint: look at the plan with --dry-run; if it is right, repeat with a larger --max-share")
    _by_reason(item for item in plan.decisions if item.unsettled and item.reason != "Brake")
    for outcome in report.outcomes:
        if outcome.message and outcome.result.value in ("failed", "undone", "busy", "changed"):
            note(f"{outcome.decision.stack}: {outcome.decision.action.value} {outcome.result.value}: {outcome.message}")
            if outcome.hint:
                note(f"hint: {outcome.hint}")
    if report.unlisted:
        note(f"not allowed to list {', '.join(report.unlisted)}: what is left of them is not seen")
    told = [item.due for item in plan.decisions if item.verdict.value == "Notice" and item.due is not None]
    if told and not plan.refused:
        note(f"{len(told)} on notice: the first goes in a sweep after {min(told).isoformat(timespec='seconds')}")


def _by_reason(decisions: Iterable[Decision]) -> None:
    reasons: defaultdict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        reasons[decision.reason].append(decision)
    for reason, found in reasons.items():
        for decision in found[:_NAMED]:
            note(f"{decision.stack}: {reason}: {decision.message}")
        if len(found) > _NAMED:
            note(f"{reason}: and {len(found) - _NAMED} more; `-o json` has them all")
