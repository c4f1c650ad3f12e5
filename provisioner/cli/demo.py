"""`provisioner demo`: the whole path, shown on a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.status import Status
from rich.text import Text

from provisioner.cli.output import Format, FormatOption, note, print_result, stderr

if TYPE_CHECKING:
    from provisioner.demo.report import DemoReport, StepReport


class _Shown:
    """A line for each step that is done, and on a terminal a live one for the step under way."""

    def __init__(self) -> None:
        self._console = stderr()
        self._status: Status | None = None
        self._step = self._last = ""

    def begin(self, step: str) -> None:
        self._step, self._last = step, ""
        if self._console.is_terminal:
            self._status = self._console.status(Text(step), spinner="line")
            self._status.start()
        else:
            self._print(step)

    def update(self, line: str) -> None:
        if self._status is None:
            if line != self._last:
                self._print(f"  {line}")
            self._last = line
            return
        room = max(20, self._console.width - 4)
        self._status.update(Text(f"{self._step}: {line}".replace("\n", " ")[:room]))

    def say(self, line: str) -> None:
        self._print(f"  {line}", style="dim")

    def done(self, step: StepReport) -> None:
        self.end()
        self._print(f"{step.seconds:6.1f} s  {step.name}: {step.result}", style="bold")

    def end(self) -> None:
        """Take the live line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(line, style=style), soft_wrap=True)


def demo(
    context: Annotated[
        str | None,
        typer.Option(help="A context of the kubeconfig, instead of a sandbox; needs --image.", show_default=False),
    ] = None,
    sandbox: Annotated[str, typer.Option(help="Which sandbox; it is started if it does not run.")] = "default",
    image: Annotated[
        str | None,
        typer.Option(
            help="An image with examples/gnn that the cluster can pull; else one is made.", show_default=False
        ),
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(help="The folder with the example; else the checkout's.", show_default=False)
    ] = None,
    steps: Annotated[int, typer.Option(min=10, max=10_000, help="Batches of each training worker.")] = 200,
    with_operator: Annotated[
        bool,
        typer.Option("--with-operator", help="Train by a TFJob, which the Kubeflow training operator runs."),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running, and print commands to look around.")] = False,
    end: Annotated[bool, typer.Option("--end", help="End the demonstration that was kept.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show it all: a graph store, a training, a scale-up, the end."""
    from provisioner import logs
    from provisioner.demo import kept
    from provisioner.demo.run import Demo, Options
    from provisioner.settings import load

    settings = load()
    logs.configure_as_guest(settings)
    if context is not None:
        settings = settings.model_copy(update={"context": context})
    options = Options(None if context is not None else sandbox, image, examples, steps, keep, with_operator)
    shown = _Shown()
    try:
        report = kept.end(settings, shown) if end else Demo(options, settings, shown).run()
    finally:
        shown.end()
    print_result(_table(report), output)
    for line in report.kept:
        note(line)


def _table(report: DemoReport) -> list[dict[str, Any]]:
    rows = [{"step": step.name, "seconds": round(step.seconds, 1), "result": step.result} for step in report.steps]
    return [*rows, {"step": "all", "seconds": round(report.seconds, 1), "result": "every step did what it should"}]
