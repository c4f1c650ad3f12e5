"""Which deployed agent serves which task type, kept up to date without lists kept by hand.

`AgentRegistry` (and `AsyncAgentRegistry`) is the library; `server.serve` is the
gateway; `local.route_local_tasks` sends the tasks of a local run to the
deployed agents. Nothing here knows of data services.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provisioner.registry.blocking import AgentRegistry
    from provisioner.registry.client import AsyncAgentRegistry

__all__ = ["AgentRegistry", "AsyncAgentRegistry"]


def __getattr__(name: str) -> Any:
    """Import on first use: gRPC and flyteidl take half a second, which `--help` must not."""
    if name in __all__:
        from provisioner.registry import blocking, client

        return getattr(blocking if name == "AgentRegistry" else client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
