"""`provisioner gc`: what lost its owner goes, what is in use stays; once, for a CronJob or by hand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provisioner.cli.output import Exit, Format, FormatOption, note, print_result, print_table

if TYPE_CHECKING:
    from provisioner.janitor.outcome import Completion, Report

app = typer.Typer(no_args_is_help=False)

_COLUMNS = {"stack": "stack", "owner": "owner", "age": "age", "verdict": "verdict", "reason": "reason"}


def _exit(completion: Completion) -> Exit:
    return {
        "complete": Exit.DONE,
        "failed": Exit.FAILED,
        "postponed": Exit.NOT_READY,
        "refused": Exit.REFUSED,
    }[completion.value]


def _age(age: timedelta | None) -> str | None:
    from provisioner.spec import format_duration

    if age is None:
        return None
    seconds = max(0, int(age.total_seconds()))
    # Like kubectl: the two largest units are enough.
    for unit in (86400, 3600, 60):
        if seconds >= unit * 10:
            seconds -= seconds % unit
            break
    return format_duration(seconds)


def _document(report: Report) -> dict[str, Any]:
    """The whole report as plain data: the format of `-o json`, which stays stable."""
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


def _print_tables(report: Report) -> None:
    """For people: in a dry run each stack, otherwise what was done or is to be; then the numbers."""
    from provisioner.janitor.decision import Action, Verdict

    rows = []
    for decision in report.plan.decisions:
        settled = decision.verdict is Verdict.KEEP and not decision.unsettled and decision.action is Action.NONE
        if settled and not report.dry_run:
            continue
        outcome = report.result(decision)
        row = {
            "stack": decision.stack,
            "owner": decision.owner or None,
            "age": _age(decision.age),
            "verdict": decision.verdict.value,
            "reason": decision.reason,
        }
        rows.append(row if report.dry_run else {**row, "result": outcome.result.value if outcome else "-"})
    if rows:
        columns = _COLUMNS if report.dry_run else {**_COLUMNS, "result": "result"}
        print_table(list(columns), [[row[key] for key in columns.values()] for row in rows])
        typer.echo()
    summary = [(verdict.value, reason, count) for (verdict, reason), count in report.summary.items()]
    if summary:
        print_table(("verdict", "reason", "count"), summary)
    else:
        note("no services")


def _explain(report: Report) -> None:
    """Say to people what needs them: refusals, the brake, what stays although it may have to go, failures."""
    plan = report.plan
    if plan.refused:
        note(f"refused: {plan.refused}; nothing was done")
        note("hint: check the kubeconfig's context, and PROVISIONER_GC_CLUSTER")
    if plan.brake:
        note(f"brake: {plan.brake}")
        note("hint: look at the plan with --dry-run; if it is right, repeat with a larger --max-share")
    for decision in plan.decisions:
        if decision.unsettled and decision.reason not in ("Brake", "Limit"):
            note(f"{decision.stack}: {decision.reason}: {decision.message}")
    for outcome in report.outcomes:
        if outcome.message and outcome.result.value in ("failed", "undone", "busy", "changed"):
            note(f"{outcome.decision.stack}: {outcome.decision.action.value} {outcome.result.value}: {outcome.message}")
    if report.unlisted:
        note(f"not allowed to list {', '.join(report.unlisted)}: what is left of them is not seen")


@app.callback(invoke_without_command=True)
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")] = False,
    owners: Annotated[
        str | None,
        typer.Option(help="Who is asked: flyteworkflow, flyteadmin, lease, object (comma-separated), or none."),
    ] = None,
    min_age: Annotated[str | None, typer.Option(help="Touch nothing that changed within this time.")] = None,
    grace: Annotated[str | None, typer.Option(help="Time between the owner's end and the removal.")] = None,
    failure_retention: Annotated[str | None, typer.Option(help="The same for an owner that failed.")] = None,
    notice: Annotated[str | None, typer.Option(help="Time between the first sight and the removal.")] = None,
    max_destroys: Annotated[int | None, typer.Option(help="Services that are removed at most.")] = None,
    max_share: Annotated[
        str | None, typer.Option(help="Remove nothing if it were more than this share, as 50%.")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="Only this namespace; may be repeated.")
    ] = None,
    rules: Annotated[Path | None, typer.Option(help="File with other rules by project and domain.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Removals that run at once.")] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(help="Write Prometheus metrics here, for a node exporter's textfile collector.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Remove what lost its owner: stacks, objects, volumes, locks.

    Every option stands for a setting PROVISIONER_GC_*. Exit codes: 0 nothing
    was left undone, 1 something failed, 3 something was postponed (or, in a
    dry run, is to be removed), 4 refused: this is the wrong cluster.
    """
    if context.invoked_subcommand is not None:
        return Exit.DONE
    from provisioner import logs
    from provisioner.janitor import settings as own
    from provisioner.settings import load

    chosen = own.load(
        owners=owners,
        min_age=min_age,
        grace=grace,
        failure_retention=failure_retention,
        notice=notice,
        max_destroys=max_destroys,
        max_share=max_share,
        namespaces=tuple(namespace) if namespace else None,
        rules=rules,
        parallel=parallel,
    )
    settings = load()
    logs.configure(settings)
    report = _sweep(settings, chosen, dry_run=dry_run)
    if metrics_file is not None and not dry_run:
        from provisioner.janitor import metrics

        metrics.write(metrics_file)
    if output is Format.TABLE:
        _print_tables(report)
        _explain(report)
    else:
        print_result(_document(report), output)
    return _exit(report.completion)


def _sweep(settings: Any, chosen: Any, *, dry_run: bool) -> Report:
    """Sweep once; SIGTERM and Ctrl-C end it in good order, with what was done so far reported."""
    import signal

    from provisioner.engine import Cancellation
    from provisioner.janitor.janitor import Janitor

    cancellation = Cancellation()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: cancellation.cancel())
    janitor = Janitor(settings, chosen)
    try:
        return janitor.sweep(dry_run=dry_run, cancellation=cancellation)
    finally:
        janitor.close()
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command("forget")
def forget(
    stacks: Annotated[list[str], typer.Argument(help="Names of stacks.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Drop the record of a stack and leave the cluster alone: for what can never be reached again.

    What the cluster still has of it is found by its labels from then on, and
    removed by a later sweep once its owner has ended.
    """
    from provisioner import logs
    from provisioner.janitor import settings as own
    from provisioner.janitor.janitor import Janitor
    from provisioner.settings import load

    if not yes:
        typer.confirm(f"Drop the record of {', '.join(stacks)} without deleting anything in a cluster?", abort=True)
    settings = load()
    logs.configure(settings)
    janitor = Janitor(settings, own.load())
    try:
        missing = [stack for stack in stacks if not janitor.forget(stack)]
    finally:
        janitor.close()
    for stack in stacks:
        note(f"{stack}: {'had no record' if stack in missing else 'its record is dropped'}")
    return Exit.DONE
