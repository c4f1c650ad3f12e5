"""The routing table as rows for people and machines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.registry.durations import format_duration
from provisioner.registry.table import AgentStatus, Route, RoutingTable

COLUMNS = {
    "task type": "task_type",
    "version": "version",
    "mode": "mode",
    "agent": "agent",
    "endpoint": "endpoint",
    "why": "why",
    "last seen": "last_seen",
    "stale": "stale",
    "conflicts": "conflicts",
}
"""Heading -> key of a row."""


def _last_seen(status: AgentStatus, now: float, clock: datetime) -> datetime | None:
    answered = status.observation.answered_at
    return None if answered is None else clock - timedelta(seconds=max(0.0, now - answered))


def _row(route: Route | None, status: AgentStatus, now: float, clock: datetime) -> dict[str, Any]:
    seen = _last_seen(status, now, clock)
    return {
        "task_type": (route.task_type or "*") if route else None,
        "version": ("*" if route.version is None else route.version) if route else None,
        "mode": str(route.mode) if route else None,
        "agent": status.deployment.id,
        "endpoint": status.deployment.endpoint,
        "why": str(route.why) if route else None,
        "last_seen": seen.isoformat(timespec="seconds") if seen else None,
        "stale": status.stale,
        "conflicts": list(route.others) if route and route.conflict else [],
        "overrides": list(route.others) if route and not route.conflict else [],
        "problem": status.observation.error or None,
    }


def rows_of(table: RoutingTable, *, now: float, clock: datetime | None = None) -> list[dict[str, Any]]:
    """One row per route, then one per agent that serves nothing.

    Args:
        table: The table.
        now: Seconds on the clock of the table.
        clock: The same moment as a date; the present by default.

    Returns:
        Plain data. `*` as a task type or version means every one.
    """
    clock = clock or datetime.now(UTC)
    rows = [_row(route, table.agents[route.agent], now, clock) for route in table.routes]
    serving = {route.agent for route in table.routes}
    rows += [_row(None, status, now, clock) for name, status in table.agents.items() if name not in serving]
    return rows


def for_people(row: dict[str, Any], *, clock: datetime | None = None) -> dict[str, Any]:
    """A row with an age instead of a date and words instead of lists, for a table."""
    clock = clock or datetime.now(UTC)
    seen = row["last_seen"]
    # To whole seconds, as the date is.
    age = int((clock - datetime.fromisoformat(seen)).total_seconds()) if seen else None
    return row | {
        "last_seen": "never" if age is None else f"{format_duration(age)} ago" if age > 0 else "now",
        "stale": "yes" if row["stale"] else "no",
        "conflicts": ", ".join(row["conflicts"]) or None,
    }


def remarks(table: RoutingTable) -> Iterator[str]:
    """What a reader of the table should know beside it, one line each."""
    for name, status in table.agents.items():
        error = status.observation.error
        if error and status.expired:
            yield f"agent {name} does not answer: {error}; its entries have been dropped"
        elif error and not status.observation.itself:
            kept = "; its entries are kept for now" if status.observation.announced else ""
            yield f"agent {name} does not answer: {error}{kept}"
        elif error:
            yield f"agent {name} {error}; it is left out"
        elif status.observation.gateway:
            yield f"agent {name} is the gateway {status.observation.gateway}"
    for route in table.conflicts:
        others = ", ".join(route.others)
        yield f"{route.task_type} ({route.version}) is announced by {others} too; {route.agent} comes first and gets it"
    for task_type, name in table.unresolved.items():
        yield f"the explicit entry for {task_type} names {name or 'nothing'}, which is no known agent; it has no effect"
