"""Options that `provisioner agents` and `provisioner gateway` share, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.errors import UsageError

if TYPE_CHECKING:
    from provisioner.registry.config import Tls
    from provisioner.registry.watch import Discovery

WATCHING = "Watching"
FINDING = "Finding agents"
TLS = "TLS"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="PROVISIONER_AGENTS_CONFIG",
        help="YAML file, folder or ConfigMap with agent-service or connector-service.",
        rich_help_panel=FINDING,
    ),
]
DiscoverOption = Annotated[
    bool, typer.Option("--discover", help="Find agents by label on Kubernetes Services.", rich_help_panel=FINDING)
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--discover-label",
        help="Label selector for --discover; data-service-provisioner/agent=true by default.",
        rich_help_panel=FINDING,
    ),
]
NamespaceOption = Annotated[
    str, typer.Option("--discover-namespace", help="Look only here; else everywhere.", rich_help_panel=FINDING)
]
DomainOption = Annotated[
    str, typer.Option("--cluster-domain", help="Domain of the cluster's DNS.", rich_help_panel=FINDING)
]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--poll-interval",
        metavar="DURATION",
        help="Time between two rounds, such as 10s; else the file's.",
        rich_help_panel=WATCHING,
    ),
]
StaleOption = Annotated[
    str,
    typer.Option(
        "--stale-after",
        metavar="DURATION",
        help="How long a silent agent keeps its entries.",
        rich_help_panel=WATCHING,
    ),
]
AgentCaOption = Annotated[
    Path | None,
    typer.Option("--agent-ca", help="CA file for agents with TLS; else the system's.", rich_help_panel=TLS),
]
AgentCertOption = Annotated[
    Path | None, typer.Option("--agent-cert", help="Client certificate shown to agents.", rich_help_panel=TLS)
]
AgentKeyOption = Annotated[Path | None, typer.Option("--agent-key", help="Its key.", rich_help_panel=TLS)]


def seconds(value: str, option: str, *, least: float = 0.0) -> float:
    """Read a duration that was given as an option.

    Args:
        value: For example `1m30s`.
        option: The option, for the message.
        least: Seconds that it must be at least.

    Raises:
        UsageError: It is no duration, or too short.
    """
    from provisioner.registry.durations import parse_duration

    try:
        found = parse_duration(value)
    except ValueError as error:
        raise UsageError(f"{option} {error} (got {value!r})", hint=f"for example {option} 30s") from error
    if found < least:
        raise UsageError(f"{option} must be at least {least:g} s (got {value!r})")
    return found


def interval(value: str | None) -> float | None:
    """Seconds of --poll-interval, or None when it was not given.

    Raises:
        UsageError: It is no duration, or too short.
    """
    return None if value is None else seconds(value, "--poll-interval", least=0.1)


def agent_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Tls:
    """Files for connections to agents.

    Raises:
        UsageError: A certificate without its key, or the other way round.
    """
    from provisioner.registry.config import Tls

    if (cert is None) != (key is None):
        raise UsageError("--agent-cert and --agent-key must be given together")
    return Tls(ca=ca, cert=cert, key=key)


def discovery(config: Path | None, discover: bool, label: str | None, namespace: str, domain: str) -> Discovery | None:
    """What looks for agents, or None when they are all in the configuration.

    Raises:
        UsageError: Neither names agents, or there is no cluster to look at.
    """
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
