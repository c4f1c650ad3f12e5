"""What is different between two tables, in words: the watch logs this and nothing else.

A round every ten seconds that logged its outcome would hide the one line that
matters at night; so only changes are said, each once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from provisioner.registry.table import Route, RoutingTable


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        level: Of `logging`.
        message: What happened.
        values: To whom, and what it was.
    """

    level: int
    message: str
    values: Mapping[str, str] = field(default_factory=dict)


def _key(route: Route) -> tuple[str, int | None]:
    return route.task_type, route.version


def _label(route: Route) -> str:
    if not route.task_type:
        return "every other task type"
    return f"{route.task_type} (every version)" if route.version is None else f"{route.task_type} ({route.version})"


def _agents(before: RoutingTable, after: RoutingTable) -> Iterator[Change]:
    for name, status in after.agents.items():
        old = before.agents.get(name)
        error, past = status.observation.error, old.observation.error if old else ""
        endpoint = status.deployment.endpoint
        if old is None:
            yield Change(logging.INFO, "agent is watched", {"agent": name, "endpoint": endpoint})
        if error and error != past:
            kept = (
                "its entries are kept" if status.observation.announced and not status.expired else "it has no entries"
            )
            message = "agent is ignored" if status.observation.itself else "agent does not answer"
            values = {"agent": name, "endpoint": endpoint, "problem": error}
            yield Change(logging.WARNING, message, values if status.observation.itself else values | {"entries": kept})
        if past and not error:
            yield Change(logging.INFO, "agent answers again", {"agent": name, "endpoint": endpoint})
        if status.expired and not (old and old.expired):
            yield Change(logging.ERROR, "agent has been silent too long, its entries are dropped", {"agent": name})
    for name in before.agents:
        if name not in after.agents:
            yield Change(logging.INFO, "agent is no longer watched", {"agent": name})


def changes_between(before: RoutingTable, after: RoutingTable) -> list[Change]:
    """The differences between two tables that somebody may want to know.

    Args:
        before: The older one.
        after: The newer one.
    """
    found = list(_agents(before, after))
    old = {_key(route): route for route in before.routes}
    new = {_key(route): route for route in after.routes}
    for key, route in new.items():
        past = old.get(key)
        values = {"task": _label(route), "agent": route.agent, "why": str(route.why)}
        if past is None:
            found.append(Change(logging.INFO, "task type is served", values | {"mode": str(route.mode)}))
        elif (past.agent, past.mode, past.why) != (route.agent, route.mode, route.why):
            found.append(Change(logging.INFO, "task type is served differently", values | {"before": past.agent}))
        if route.conflict and not (past and past.conflict and past.others == route.others):
            others = ", ".join(route.others)
            found.append(Change(logging.WARNING, "several agents announce a task type", values | {"also": others}))
    found += [
        Change(logging.INFO, "task type is no longer served", {"task": _label(route), "agent": route.agent})
        for key, route in old.items()
        if key not in new
    ]
    found += [
        Change(logging.WARNING, "explicit entry names no known agent", {"task": task_type, "agent": name})
        for task_type, name in after.unresolved.items()
        if before.unresolved.get(task_type) != name
    ]
    return found
