"""`provisioner toolchain`: provide the binaries of engine and sandbox, and show them."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.status import Status
from rich.text import Text

from provisioner.cli.groups import GroupedHelp
from provisioner.cli.output import Exit, Format, FormatOption, note, print_result, stderr
from provisioner.toolchain.pins import DEFAULT_GROUPS, Group
from provisioner.toolchain.progress import Progress, Step

app = typer.Typer(
    cls=GroupedHelp,
    help="The binaries that the engine and the sandbox need.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_QUIET_S = 60.0

GroupOption = Annotated[
    list[Group] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Only this group (engine, sandbox or training); may be given again. Default: engine and sandbox.",
    ),
]


def human_size(size: int) -> str:
    """Bytes as people read them.

    Example:
        >>> human_size(122_265_865)
        '122 MB'
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            value = size / factor
            return f"{value:.1f} {unit}" if unit == "GB" else f"{value:.0f} {unit}"
    return f"{size} B"


def human_time(seconds: float) -> str:
    """A duration as people read it.

    Example:
        >>> human_time(191)
        '3 min 11 s'
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _headline(step: Step) -> str:
    span = f"{step.index} of {step.count}"
    return f"{span}: {step.action} {' '.join(part for part in (step.name, step.version) if part)}"


class Shown(Progress):
    """Shows an installation: a line that lives on a terminal, else one line per event."""

    def __init__(self) -> None:
        self._console = stderr()
        self._status: Status | None = None
        self._step: Step | None = None
        self._since = self._told = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("looking", spinner="line")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, step: Step) -> None:
        """Name the step."""
        self._step, self._since = step, time.monotonic()
        self._told = self._since
        if self._status is None:
            self._print(_headline(step))
        else:
            self.tick("")

    def tick(self, line: str) -> None:
        """Show how long the step has taken and what it does; without a terminal, once a minute."""
        if self._step is None:
            return
        now = time.monotonic()
        text = f"{_headline(self._step)}, {human_time(now - self._since)}"
        if self._status is not None:
            full = f"{text}  {line}"
            # One line: a longer one would leave its rest behind on the screen.
            self._status.update(Text(full[: max(20, self._console.width - 4)]))
        elif now - self._told >= _QUIET_S:
            self._told = now
            self._print(f"{text}  {line}")

    def note(self, line: str) -> None:
        """Print a remark."""
        self._print(f"note: {line}")

    def done(self, step: Step, size: int) -> None:
        """Say how long the step took and what it brought."""
        took = human_time(time.monotonic() - self._since)
        name = " ".join(part for part in (step.name, step.version) if part)
        self._print(f"{step.index} of {step.count}: {name} is ready ({took}, {human_size(size)})")

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


@app.command("install")
def install(
    group: GroupOption = None,
    no_official: Annotated[
        bool, typer.Option("--no-official", help="Build from source without trying the official installers.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Copy the binaries from this folder, for a machine without a network.",
            exists=True,
            file_okay=False,
            resolve_path=True,
        ),
    ] = None,
) -> None:
    """Provide every binary that is missing or broken.

    One that was interrupted goes on where it was, when run again.
    """
    from provisioner import toolchain

    started = time.monotonic()
    with Shown() as shown:
        states = toolchain.install(
            tuple(group or DEFAULT_GROUPS), official=not no_official, folder=folder, progress=shown
        )
    total = sum(state.binary.size for state in states if state.binary is not None)
    took = human_time(time.monotonic() - started)
    note(f"the toolchain is ready: {len(states)} binaries, {human_size(total)} ({took})")


@app.command("status")
def status(group: GroupOption = None, output: FormatOption = Format.TABLE) -> int:
    """Show each binary; exit code 3 when one is missing or broken."""
    from provisioner import toolchain

    states = toolchain.status(tuple(group or DEFAULT_GROUPS))
    rows = [_row(state) for state in states]
    columns = {key: key for key in ("name", "group", "version", "from", "size", "state", "path")}
    shown = [{**row, "size": None if row["size"] is None else human_size(row["size"])} for row in rows]
    print_result(shown if output is Format.TABLE else rows, output, columns=columns)
    unusable = [state for state in states if state.binary is None]
    if not unusable:
        return Exit.DONE
    if output is Format.TABLE:
        for state in unusable:
            if state.detail:
                note(f"{state.pin.name}: {state.detail}")
        groups = dict.fromkeys(str(state.pin.group) for state in unusable)
        note("hint: run `provisioner toolchain install" + "".join(f" --group {name}" for name in groups) + "`")
    return Exit.NOT_READY


def _row(state: Any) -> dict[str, Any]:
    binary = state.binary
    return {
        "name": state.pin.name,
        "group": str(state.pin.group),
        "version": binary.version if binary else state.pin.wanted,
        "from": binary.source if binary else None,
        "size": binary.size if binary else None,
        "path": str(binary.path) if binary else None,
        "state": str(state.condition),
        "detail": state.detail,
    }


@app.command("env")
def env() -> None:
    """Print shell lines for using the plain `pulumi`.

    Take them in with: eval "$(provisioner toolchain env)"
    """
    from provisioner import toolchain

    for key, value in toolchain.environment().items():
        typer.echo(f"export {key}={shlex.quote(value)}")
