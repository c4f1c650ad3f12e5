"""`provisioner agents`: who serves which task type, and which entries of a propeller's configuration do anything."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from provisioner.cli.agent_options import (
    WATCHING,
    AgentCaOption,
    AgentCertOption,
    AgentKeyOption,
    ConfigOption,
    DiscoverOption,
    DomainOption,
    IntervalOption,
    LabelOption,
    NamespaceOption,
    StaleOption,
    agent_tls,
    discovery,
    interval,
    seconds,
)
from provisioner.cli.output import Exit, Format, FormatOption, note, print_result
from provisioner.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from provisioner.registry.client import AsyncAgentRegistry
    from provisioner.registry.table import RoutingTable


class _ListByDefault(TyperGroup):
    """`provisioner agents -o json` means `provisioner agents list -o json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListByDefault,
    help="Show which deployed agent serves which task type.\n\nWithout a verb, `list` is meant.",
    rich_markup_mode=None,
)


_BROKEN = "the configuration is broken, the old one stays in use"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's log lines away from a command that prints the same as notes."""
    import logging

    import structlog

    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(wrapper_class=before)


class _Printer:
    """Prints tables as they come: once, or again and again."""

    def __init__(self, output: Format) -> None:
        self.output = output
        self._last: Any = None

    def rows(self, table: RoutingTable) -> list[dict[str, Any]]:
        from provisioner.registry.report import rows_of

        return rows_of(table, now=time.monotonic())

    def once(self, table: RoutingTable) -> None:
        from provisioner.registry.report import COLUMNS, for_people, remarks

        rows = self.rows(table)
        if self.output is Format.TABLE:
            rows = [for_people(row) for row in rows]
        print_result(rows, self.output, columns=COLUMNS, empty="no agents")
        for remark in remarks(table):
            note(remark)

    def again(self, table: RoutingTable) -> None:
        """Print when something has changed: one JSON line, one YAML document, or the whole table."""
        rows = self.rows(table)
        essence = [{key: value for key, value in row.items() if key != "last_seen"} for row in rows]
        if essence == self._last:
            return
        first, self._last = self._last is None, essence
        if self.output is not Format.TABLE:
            print_result(rows, self.output, more=True)
        else:
            if not first:
                typer.echo("")
            self.once(table)
        sys.stdout.flush()

    def live(self, table: RoutingTable, problem: str) -> RenderableType:
        """The table as it should stand on a terminal, and what to know beside it."""
        from rich.table import Table

        from provisioner.registry.report import COLUMNS, for_people, remarks

        shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), caption_justify="left")
        for heading in COLUMNS:
            shown.add_column(heading.upper(), no_wrap=True, overflow="ellipsis")
        for row in map(for_people, self.rows(table)):
            shown.add_row(*("<none>" if row[key] is None else str(row[key]) for key in COLUMNS.values()))
        broken = [f"{_BROKEN}: {problem}"] if problem else []
        shown.caption = "\n".join([*broken, *remarks(table)])
        return shown


async def _show(registry: AsyncAgentRegistry, printer: _Printer, *, watch: bool) -> None:
    async with registry:
        if not watch:
            printer.once(registry.table)
            return
        if printer.output is Format.TABLE and sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            with Live(console=Console(), auto_refresh=False) as screen:
                async for table in registry.tables():
                    screen.update(printer.live(table, registry.source.error), refresh=True)
        said = ""
        async for table in registry.tables():
            printer.again(table)
            if registry.source.error not in ("", said):
                note(f"{_BROKEN}: {registry.source.error}")
            said = registry.source.error


def _until_interrupted(work: Callable[[], Any]) -> int:
    # Ctrl-C is the usual end of --watch.
    with _quiet(), suppress(KeyboardInterrupt):
        asyncio.run(work())
    return Exit.DONE


@app.command("list")
def list_agents(
    config: ConfigOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on and show each change.", rich_help_panel=WATCHING)
    ] = False,
    output: FormatOption = Format.TABLE,
    poll_interval: IntervalOption = None,
    stale_after: StaleOption = "10m",
    discover: DiscoverOption = False,
    discover_label: LabelOption = None,
    discover_namespace: NamespaceOption = "",
    cluster_domain: DomainOption = "cluster.local",
    agent_ca: AgentCaOption = None,
    agent_cert: AgentCertOption = None,
    agent_key: AgentKeyOption = None,
) -> int:
    """Ask every agent what it serves, and show where requests go and why."""
    from provisioner.registry.client import AsyncAgentRegistry

    found = discovery(config, discover, discover_label, discover_namespace, cluster_domain)

    async def work() -> None:
        registry = AsyncAgentRegistry(
            config,
            stale_after=seconds(stale_after, "--stale-after"),
            poll_interval=interval(poll_interval),
            agent_tls=agent_tls(agent_ca, agent_cert, agent_key),
            discovery=found,
            watch=watch,
        )
        await _show(registry, _Printer(output), watch=watch)

    return _until_interrupted(work)


@app.command("check")
def check_entries(
    config: ConfigOption = None,
    configmap: Annotated[
        Path | None,
        typer.Option("--configmap", help="The propeller's ConfigMap or file; the --config itself by default."),
    ] = None,
    output: FormatOption = Format.TABLE,
    agent_ca: AgentCaOption = None,
    agent_cert: AgentCertOption = None,
    agent_key: AgentKeyOption = None,
) -> int:
    """Judge a propeller's entries for agents by what they announce.

    Each entry is needed, unnecessary, shadowed or wrong. Exit code 1 when any is wrong.
    """
    from dataclasses import asdict

    from provisioner.registry.check import Verdict, judge_files

    if config is None:
        raise UsageError("no agents are named", hint="name a configuration with --config")
    with _quiet():
        findings = asyncio.run(judge_files(config, configmap or config, agent_tls(agent_ca, agent_cert, agent_key)))
    print_result([asdict(item) for item in findings], output, empty="there are no entries for agents")
    wrong = sum(item.verdict is Verdict.WRONG for item in findings)
    if wrong:
        note(f"{wrong} of {len(findings)} entries are wrong")
    return Exit.FAILED if wrong else Exit.DONE
