"""`provisioner gc`: what lost its owner goes, what is in use stays; once, for a CronJob or by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.cli.output import Exit, Format, FormatOption, note, print_result
from provisioner.errors import ProvisionerError

if TYPE_CHECKING:
    from provisioner.engine import Cancellation
    from provisioner.janitor.outcome import Completion, Report
    from provisioner.janitor.settings import JanitorSettings
    from provisioner.settings import Settings

app = typer.Typer(no_args_is_help=False)


def _exit(completion: Completion) -> Exit:
    return {
        "complete": Exit.DONE,
        "failed": Exit.FAILED,
        "postponed": Exit.NOT_READY,
        "refused": Exit.REFUSED,
    }[completion.value]


@app.callback(invoke_without_command=True)
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")] = False,
    owners: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Who is asked: flyteworkflow, flyteadmin, lease, object (comma-separated), or none."
        ),
    ] = None,
    min_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Touch nothing that changed within this time.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time between the owner's end and the removal.")
    ] = None,
    failure_retention: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The same for an owner that failed.")
    ] = None,
    notice: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time between the first sight and the removal.")
    ] = None,
    max_destroys: Annotated[int | None, typer.Option(help="Services that are removed at most.")] = None,
    max_share: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Remove nothing if it were more than this share, as 50%."),
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
    from provisioner.cli import gc_report
    from provisioner.janitor import metrics
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
    logs.configure(settings, level=_log_level(settings))
    try:
        report = _sweep(settings, chosen, dry_run=dry_run)
        if output is Format.TABLE:
            gc_report.print_tables(report)
            gc_report.explain(report)
        else:
            print_result(gc_report.document(report), output)
    except ProvisionerError:
        note("nothing was decided, so nothing was done")
        raise
    finally:
        # A sweep that could not even begin counts as well.
        if metrics_file is not None and not dry_run:
            metrics.write(metrics_file)
    return _exit(report.completion)


def _log_level(settings: Settings) -> str | None:
    """On a terminal the tables and what follows them say it all; elsewhere the log is the record."""
    return "error" if sys.stderr.isatty() and "log_level" not in settings.model_fields_set else None


def _sweep(settings: Settings, chosen: JanitorSettings, *, dry_run: bool) -> Report:
    """Sweep once; SIGTERM and Ctrl-C end it in good order, with what was done so far reported."""
    from provisioner.engine import Cancellation
    from provisioner.janitor.janitor import Janitor

    with _cancelled_by_signals(Cancellation()) as cancellation:
        janitor = Janitor(settings, chosen)
        try:
            return janitor.sweep(dry_run=dry_run, cancellation=cancellation)
        finally:
            janitor.close()


@contextmanager
def _cancelled_by_signals(cancellation: Cancellation) -> Iterator[Cancellation]:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end(*_: object) -> None:
        note("ending: what runs is brought to a good end, nothing more is begun")
        cancellation.cancel()

    for number in before:
        signal.signal(number, end)
    try:
        yield cancellation
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command("forget")
def forget(
    stacks: Annotated[list[str], typer.Argument(help="Names of stacks.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Drop a stack's record; the cluster is left alone.

    For what can never be reached again. What the cluster still has of it is found by its labels from then on, and
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
