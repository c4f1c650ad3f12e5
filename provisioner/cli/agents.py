"""`provisioner agents` and `provisioner gateway`: who serves which task type, and one endpoint for all of them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from provisioner.cli.output import Exit, Format, FormatOption, note, print_result
from provisioner.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from provisioner.registry.client import AsyncAgentRegistry
    from provisioner.registry.config import Tls
    from provisioner.registry.server import Addresses
    from provisioner.registry.table import RoutingTable
    from provisioner.registry.watch import Discovery


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

_WATCHING = "Watching"
_FINDING = "Finding agents"
_TLS = "TLS"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="PROVISIONER_AGENTS_CONFIG",
        help="YAML file, folder or ConfigMap with agent-service or connector-service.",
        rich_help_panel=_FINDING,
    ),
]
DiscoverOption = Annotated[
    bool, typer.Option("--discover", help="Find agents by label on Kubernetes Services.", rich_help_panel=_FINDING)
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--discover-label",
        help="Label selector for --discover; data-service-provisioner/agent=true by default.",
        rich_help_panel=_FINDING,
    ),
]
NamespaceOption = Annotated[
    str, typer.Option("--discover-namespace", help="Look only here; else everywhere.", rich_help_panel=_FINDING)
]
DomainOption = Annotated[
    str, typer.Option("--cluster-domain", help="Domain of the cluster's DNS.", rich_help_panel=_FINDING)
]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--poll-interval",
        metavar="DURATION",
        help="Time between two rounds, such as 10s; else the file's.",
        rich_help_panel=_WATCHING,
    ),
]
StaleOption = Annotated[
    str,
    typer.Option(
        "--stale-after",
        metavar="DURATION",
        help="How long a silent agent keeps its entries.",
        rich_help_panel=_WATCHING,
    ),
]
AgentCaOption = Annotated[
    Path | None,
    typer.Option("--agent-ca", help="CA file for agents with TLS; else the system's.", rich_help_panel=_TLS),
]
AgentCertOption = Annotated[
    Path | None, typer.Option("--agent-cert", help="Client certificate shown to agents.", rich_help_panel=_TLS)
]
AgentKeyOption = Annotated[Path | None, typer.Option("--agent-key", help="Its key.", rich_help_panel=_TLS)]


def _seconds(value: str, option: str, *, least: float = 0.0) -> float:
    from provisioner.registry.durations import parse_duration

    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise UsageError(f"{option} {error} (got {value!r})", hint=f"for example {option} 30s") from error
    if seconds < least:
        raise UsageError(f"{option} must be at least {least:g} s (got {value!r})")
    return seconds


def _interval(value: str | None) -> float | None:
    return None if value is None else _seconds(value, "--poll-interval", least=0.1)


def _agent_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Tls:
    from provisioner.registry.config import Tls

    if (cert is None) != (key is None):
        raise UsageError("--agent-cert and --agent-key must be given together")
    return Tls(ca=ca, cert=cert, key=key)


def _discovery(config: Path | None, discover: bool, label: str | None, namespace: str, domain: str) -> Discovery | None:
    if not discover:
        if label is not None or namespace:
            raise UsageError("--discover-label and --discover-namespace have no effect without --discover")
        if config is None:
            raise UsageError(
                "no agents are named", hint="name a configuration with --config, or find agents with --discover"
            )
        return None
    from provisioner.registry.discovery import DEFAULT_LABEL, ServiceDiscovery
    from provisioner.settings import load

    settings = load()
    return ServiceDiscovery(
        label=label or DEFAULT_LABEL,
        namespace=namespace,
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        cluster_domain=domain,
    )


def _quiet() -> None:
    """Keep the library's log lines away from a command that prints the same as notes."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


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
        if self.output is Format.JSON:
            typer.echo(json.dumps(rows))
        elif self.output is Format.YAML:
            typer.echo("---")
            print_result(rows, self.output)
        else:
            if not first:
                typer.echo("")
            self.once(table)
        sys.stdout.flush()

    def live(self, table: RoutingTable) -> RenderableType:
        """The table as it should stand on a terminal, and what to know beside it."""
        from rich.table import Table

        from provisioner.registry.report import COLUMNS, for_people, remarks

        shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), caption_justify="left")
        for heading in COLUMNS:
            shown.add_column(heading.upper(), no_wrap=True, overflow="ellipsis")
        for row in map(for_people, self.rows(table)):
            shown.add_row(*("<none>" if row[key] is None else str(row[key]) for key in COLUMNS.values()))
        shown.caption = "\n".join(remarks(table))
        return shown


async def _show(registry: AsyncAgentRegistry, printer: _Printer, *, watch: bool) -> None:
    async with registry:
        if not watch:
            printer.once(registry.table)
            return
        if printer.output is Format.TABLE and sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            with Live(printer.live(registry.table), console=Console(), auto_refresh=False) as screen:
                async for table in registry.tables():
                    screen.update(printer.live(table), refresh=True)
        async for table in registry.tables():
            printer.again(table)
            if registry.source.error:
                note(f"the configuration is broken, the old one stays in use: {registry.source.error}")


def _until_interrupted(work: Callable[[], Any]) -> int:
    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        return 0  # the usual end of --watch
    return Exit.DONE


@app.command("list")
def list_agents(
    config: ConfigOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on and show each change.", rich_help_panel=_WATCHING)
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

    _quiet()
    discovery = _discovery(config, discover, discover_label, discover_namespace, cluster_domain)

    async def work() -> None:
        registry = AsyncAgentRegistry(
            config,
            stale_after=_seconds(stale_after, "--stale-after"),
            poll_interval=_interval(poll_interval),
            agent_tls=_agent_tls(agent_ca, agent_cert, agent_key),
            discovery=discovery,
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
    _quiet()
    findings = asyncio.run(judge_files(config, configmap or config, _agent_tls(agent_ca, agent_cert, agent_key)))
    print_result([asdict(item) for item in findings], output, empty="there are no entries for agents")
    wrong = sum(item.verdict is Verdict.WRONG for item in findings)
    if wrong:
        note(f"{wrong} of {len(findings)} entries are wrong")
    return Exit.FAILED if wrong else Exit.DONE


def _announce(addresses: Addresses, ready_file: Path | None) -> None:
    from dataclasses import asdict

    metrics = "none" if addresses.metrics_port is None else f"{addresses.host}:{addresses.metrics_port}"
    typer.echo(f"gRPC {addresses.host}:{addresses.port}, metrics {metrics}")
    if ready_file is not None:
        beside = ready_file.with_name(ready_file.name + ".new")
        beside.write_text(json.dumps(asdict(addresses)) + "\n")
        beside.replace(ready_file)


def gateway(
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; else $PROVISIONER_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="gRPC port, 0 for a free one; else $PROVISIONER_PORT.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Prometheus port, 0 for a free one; else $PROVISIONER_METRICS_PORT."),
    ] = None,
    drain_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Time for calls in flight after SIGTERM; else $PROVISIONER_DRAIN_TIMEOUT seconds."
        ),
    ] = None,
    connect_wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long CreateTask waits for a connection before it fails.")
    ] = "5s",
    max_message_size: Annotated[int, typer.Option(min=1, help="Largest message that is taken, in MiB.")] = 64,
    name: Annotated[
        str, typer.Option(help="Name by which calls that come back are known; differs in a chain of gateways.")
    ] = "provisioner-gateway",
    ready_file: Annotated[Path | None, typer.Option(help="Write the addresses here, as JSON, once it serves.")] = None,
    poll_interval: IntervalOption = None,
    stale_after: StaleOption = "10m",
    discover: DiscoverOption = False,
    discover_label: LabelOption = None,
    discover_namespace: NamespaceOption = "",
    cluster_domain: DomainOption = "cluster.local",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate chain of this port.", rich_help_panel=_TLS)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key.", rich_help_panel=_TLS)] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option("--client-ca", help="Ask callers for a certificate signed by these.", rich_help_panel=_TLS),
    ] = None,
    agent_ca: AgentCaOption = None,
    agent_cert: AgentCertOption = None,
    agent_key: AgentKeyOption = None,
) -> int:
    """Serve all agents on one endpoint, routed by task type.

    Runs until SIGTERM. SIGHUP reads the configuration again.
    """
    from provisioner import logs
    from provisioner.registry.server import GatewayOptions, serve
    from provisioner.settings import load

    settings = load()
    logs.configure(settings)
    if not name.isascii() or not name.isprintable() or not name.strip():
        raise UsageError(f"--name must be printable ASCII (got {name!r})")
    options = GatewayOptions(
        config=config,
        host=settings.host if host is None else host,
        port=settings.port if port is None else port,
        metrics_port=settings.metrics_port if metrics_port is None else metrics_port,
        tls=_server_tls(tls_cert, tls_key, client_ca),
        agent_tls=_agent_tls(agent_ca, agent_cert, agent_key),
        stale_after=_seconds(stale_after, "--stale-after"),
        poll_interval=_interval(poll_interval),
        drain_timeout=settings.drain_timeout if drain_timeout is None else _seconds(drain_timeout, "--drain-timeout"),
        connect_wait=_seconds(connect_wait, "--connect-wait"),
        max_message_bytes=max_message_size * 2**20,
        name=name,
        discovery=_discovery(config, discover, discover_label, discover_namespace, cluster_domain),
    )
    try:
        asyncio.run(serve(options, started=lambda addresses: _announce(addresses, ready_file)))
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    return Exit.DONE


def _server_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> Any:
    from provisioner.registry.tls import ServerTls

    if cert is None or key is None:
        if cert or key or client_ca:
            raise UsageError("--tls-cert and --tls-key must be given together, and --client-ca only with them")
        return None
    return ServerTls(cert, key, client_ca)
