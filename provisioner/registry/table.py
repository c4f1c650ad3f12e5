"""The rules of routing: from configuration and answers to one immutable table.

Pure functions of values. The watch asks the agents and calls `build_table`;
gateway, client and command line only look things up in the result, which is
replaced as a whole and never changed. The rules, in this order:

1. An explicit `agentForTaskTypes` entry holds for every version of its type.
2. What an agent announces. Of two that announce the same type and version, the
   first in `RegistryConfig.deployments` wins, and the conflict is reported.
3. The default agent, if there is one.

An agent that does not answer keeps what it last announced until that is older
than a given age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from provisioner.registry.config import Deployment, RegistryConfig


class Mode(StrEnum):
    """How tasks of a type are run."""

    ASYNC = "async"
    SYNC = "sync"


class Why(StrEnum):
    """Which rule chose an agent."""

    EXPLICIT = "explicit"
    ANNOUNCED = "announced"
    DEFAULT = "default"


@dataclass(frozen=True)
class Announced:
    """One connector that a deployment announces: an `Agent` message of flyteidl.

    Attributes:
        name: The connector's own name, for example `Sensor`.
        mode: Sync or async.
        categories: (task type, version), each once.
    """

    name: str
    mode: Mode
    categories: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Observation:
    """What is known about one deployment after a round.

    Attributes:
        announced: Its last good answer.
        answered_at: Seconds on the watch's clock at its last good answer, or
            None when it never gave one.
        error: Why the latest question failed, or "".
        itself: The endpoint leads back to this very gateway.
        gateway: The name of the gateway that answered in place of an agent, or "".
    """

    announced: tuple[Announced, ...] = ()
    answered_at: float | None = None
    error: str = ""
    itself: bool = False
    gateway: str = ""


@dataclass(frozen=True)
class AgentStatus:
    """One deployment as the table sees it.

    Attributes:
        deployment: How to reach it.
        observation: What is known of it.
        stale: It did not answer; its entries are from an earlier round.
        expired: Its entries are older than the age that was set, and gone.
    """

    deployment: Deployment
    observation: Observation
    stale: bool
    expired: bool


@dataclass(frozen=True)
class Route:
    """Where requests for a task type and version go.

    Attributes:
        task_type: The type; "" stands for every type that is not listed.
        version: The version; None stands for every version.
        mode: Sync or async.
        agent: Id of the deployment.
        why: Which rule chose it.
        stale: The agent does not answer at present.
        others: Ids of other deployments that announce the same, in order.
    """

    task_type: str
    version: int | None
    mode: Mode
    agent: str
    why: Why
    stale: bool = False
    others: tuple[str, ...] = ()

    @property
    def conflict(self) -> bool:
        """Two agents announce the same, and no explicit entry says which one is meant."""
        return self.why is Why.ANNOUNCED and bool(self.others)


_Versions = Mapping[int | None, Route]


@dataclass(frozen=True)
class RoutingTable:
    """Task type -> version -> route, immutable.

    Attributes:
        agents: Id -> status, of every deployment, in the order of precedence.
        types: Task type -> version (None: every version) -> route.
        default: The route of everything else, or None.
        unresolved: Explicit entries whose agent does not exist: type -> name.
        built_at: Seconds on the watch's clock.
    """

    agents: Mapping[str, AgentStatus]
    types: Mapping[str, _Versions]
    default: Route | None
    unresolved: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    built_at: float = 0.0

    def resolve(self, task_type: str, version: int) -> Route | None:
        """The route for a task type and version, or None when nobody serves it.

        Example:
            >>> EMPTY.resolve("sensor", 0) is None
            True
        """
        versions = self.types.get(task_type)
        if versions is not None:
            route = versions.get(None) or versions.get(version)
            if route is not None:
                return route
        return self.default

    @property
    def routes(self) -> tuple[Route, ...]:
        """Every route, sorted by type and version, the default last."""
        found = [route for versions in self.types.values() for route in versions.values()]
        found.sort(key=lambda route: (route.task_type, -1 if route.version is None else route.version))
        return (*found, self.default) if self.default else tuple(found)

    @property
    def conflicts(self) -> tuple[Route, ...]:
        """The routes that more than one agent announces."""
        return tuple(route for route in self.routes if route.conflict)

    def describe_known(self, limit: int = 20) -> str:
        """What is served, for an error message: `sensor (0), spark (0, 1)`.

        Args:
            limit: Task types that are named at most.
        """
        words = []
        for task_type in sorted(self.types)[:limit]:
            versions = self.types[task_type]
            numbers = "every version" if None in versions else ", ".join(str(v) for v in sorted(versions, key=_number))
            words.append(f"{task_type} ({numbers})")
        more = len(self.types) - limit
        return (", ".join(words) or "none") + (f" and {more} more" if more > 0 else "")

    @property
    def union(self) -> tuple[Announced, ...]:
        """What all agents together serve, as one gateway announces it.

        Each type and version appears once, under the agent that gets its
        requests: the caller chooses between CreateTask and ExecuteTaskSync by
        the mode it reads here, so a loser's mode must not show.
        """
        groups: dict[tuple[str, Mode], list[tuple[str, int]]] = {}
        for route in self.routes:
            if not route.task_type:
                continue
            versions = [route.version]
            if route.version is None:
                versions = list(_announced_versions(self.agents.values(), route.task_type)) or [0]
            for version in versions:
                name = self._connector_name(route, version)
                groups.setdefault((name, route.mode), []).append((route.task_type, version or 0))
        names: dict[str, int] = {}
        for name, _ in groups:
            names[name] = names.get(name, 0) + 1
        return tuple(
            Announced(name if names[name] == 1 else f"{name} ({mode})", mode, tuple(sorted(categories)))
            for (name, mode), categories in sorted(groups.items())
        )

    def _connector_name(self, route: Route, version: int | None) -> str:
        for announced in self.agents[route.agent].observation.announced:
            if (route.task_type, version) in announced.categories and announced.mode is route.mode:
                return announced.name
        return route.agent


EMPTY = RoutingTable(agents=MappingProxyType({}), types=MappingProxyType({}), default=None)
"""The table before the first round."""


def _number(version: int | None) -> int:
    return -1 if version is None else version


def _announced_versions(agents: Iterable[AgentStatus], task_type: str) -> list[int]:
    found = {
        version
        for status in agents
        if not status.expired
        for announced in status.observation.announced
        for name, version in announced.categories
        if name == task_type
    }
    return sorted(found)


def _status(deployment: Deployment, seen: Observation, now: float, stale_after: float) -> AgentStatus:
    stale = bool(seen.error) and not seen.itself
    expired = stale and seen.answered_at is not None and now - seen.answered_at > stale_after
    return AgentStatus(deployment, seen, stale, expired)


def _announced(agents: Mapping[str, AgentStatus]) -> dict[str, dict[int | None, Route]]:
    """Rule 2: the first that announces a type and version gets it.

    A gateway that announces it too is no rival: it speaks for the agents behind it.
    """
    types: dict[str, dict[int | None, Route]] = {}
    for name, status in agents.items():
        if status.expired or status.observation.itself:
            continue
        for announced in status.observation.announced:
            for task_type, version in announced.categories:
                versions = types.setdefault(task_type, {})
                first = versions.get(version)
                if first is None:
                    versions[version] = Route(task_type, version, announced.mode, name, Why.ANNOUNCED, status.stale)
                elif not status.observation.gateway and not _same_place(agents, first, name):
                    versions[version] = _with_other(first, name)
    return types


def _same_place(agents: Mapping[str, AgentStatus], route: Route, name: str) -> bool:
    """Two entries of the configuration for one endpoint do not conflict."""
    places = {agents[other].deployment.endpoint for other in (route.agent, *route.others)}
    return agents[name].deployment.endpoint in places


def _with_other(route: Route, name: str) -> Route:
    return Route(route.task_type, route.version, route.mode, route.agent, route.why, route.stale, (*route.others, name))


def _explicit(task_type: str, status: AgentStatus, announced: Mapping[int | None, Route]) -> Route:
    """Rule 1: one route for every version; its mode is what its agent announces, else async."""
    name = status.deployment.id
    modes = {
        item.mode
        for item in status.observation.announced
        for category, _ in item.categories
        if category == task_type and not status.expired
    }
    mode = Mode.SYNC if modes == {Mode.SYNC} else Mode.ASYNC
    others = {other for route in announced.values() for other in (route.agent, *route.others)} - {name}
    return Route(task_type, None, mode, name, Why.EXPLICIT, status.stale, tuple(sorted(others)))


def build_table(
    config: RegistryConfig, observations: Mapping[str, Observation], *, now: float, stale_after: float
) -> RoutingTable:
    """Apply the rules.

    Args:
        config: What the operator said, discovered agents included.
        observations: Deployment id -> what is known of it. Their order does
            not matter; a deployment without one has not been asked yet.
        now: Seconds on the clock of the observations.
        stale_after: Seconds for which an agent that does not answer keeps what
            it announced.

    Returns:
        The whole table. It is the same for the same arguments.
    """
    agents = {
        deployment.id: _status(deployment, observations.get(deployment.id, Observation()), now, stale_after)
        for deployment in config.deployments
    }
    types = _announced(agents)
    unresolved: dict[str, str] = {}
    for task_type, name in config.explicit.items():
        status = agents.get(name)
        if status is None or status.observation.itself:
            unresolved[task_type] = name
        else:
            types[task_type] = {None: _explicit(task_type, status, types.get(task_type, {}))}
    default = None
    if config.default is not None and not agents[config.default.id].observation.itself:
        status = agents[config.default.id]
        default = Route("", None, Mode.ASYNC, config.default.id, Why.DEFAULT, status.stale)
        for task_type in config.supported:
            types.setdefault(
                task_type, {0: Route(task_type, 0, Mode.ASYNC, config.default.id, Why.DEFAULT, status.stale)}
            )
    return RoutingTable(
        agents=MappingProxyType(agents),
        types=MappingProxyType({name: MappingProxyType(versions) for name, versions in types.items()}),
        default=default,
        unresolved=MappingProxyType(unresolved),
        built_at=now,
    )
