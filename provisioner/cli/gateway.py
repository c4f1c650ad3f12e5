"""`provisioner gateway`: one endpoint for all agents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner.cli.agent_options import (
    TLS,
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
from provisioner.cli.listening import announced
from provisioner.cli.output import Exit
from provisioner.errors import UsageError


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
        Path | None, typer.Option("--tls-cert", help="Certificate chain of this port.", rich_help_panel=TLS)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key.", rich_help_panel=TLS)] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option("--client-ca", help="Ask callers for a certificate signed by these.", rich_help_panel=TLS),
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
        agent_tls=agent_tls(agent_ca, agent_cert, agent_key),
        stale_after=seconds(stale_after, "--stale-after"),
        poll_interval=interval(poll_interval),
        drain_timeout=settings.drain_timeout if drain_timeout is None else seconds(drain_timeout, "--drain-timeout"),
        connect_wait=seconds(connect_wait, "--connect-wait"),
        max_message_bytes=max_message_size * 2**20,
        name=name,
        discovery=discovery(config, discover, discover_label, discover_namespace, cluster_domain),
    )
    with announced(ready_file) as announce:
        asyncio.run(serve(options, started=announce))
    return Exit.DONE


def _server_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> Any:
    from provisioner.certificates import ServerTls

    if cert is None or key is None:
        if cert or key or client_ca:
            raise UsageError("--tls-cert and --tls-key must be given together, and --client-ca only with them")
        return None
    return ServerTls(cert, key, client_ca)
