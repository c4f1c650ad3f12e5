"""Judge the entries of a propeller's configuration by what the agents really announce.

Lists of task types are kept by hand where nobody dares to remove a line. This
says of each line whether it does anything, and which ones are mistakes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from provisioner.registry.ask import ask
from provisioner.registry.channels import ChannelPool
from provisioner.registry.config import DEFAULT_POLL_INTERVAL, Deployment, NoteKind, RegistryConfig, Tls
from provisioner.registry.documents import BLOCKS, read_sections
from provisioner.registry.parse import load, parse
from provisioner.registry.table import AgentStatus, Observation, Route, RoutingTable, Why, build_table


class Verdict(StrEnum):
    """What is to be thought of an entry."""

    WRONG = "wrong"
    SHADOWED = "shadowed"
    UNNECESSARY = "unnecessary"
    UNKNOWN = "cannot tell"
    NEEDED = "needed"


@dataclass(frozen=True)
class Finding:
    """The judgement of one entry.

    Attributes:
        verdict: What is to be thought of it.
        entry: Where it stands.
        value: What it says.
        reason: Why it is judged so.
    """

    verdict: Verdict
    entry: str
    value: str
    reason: str


def combined(registry: RegistryConfig, propeller: RegistryConfig) -> RegistryConfig:
    """A configuration that asks every agent of both, without explicit entries.

    Args:
        registry: What the registry is run with.
        propeller: What the propeller is run with.

    Returns:
        The registry's, with the agents that only the propeller knows after its
        own, so that the route of each task type is its natural one.
    """
    found = registry.with_discovered(tuple(_renamed(deployment) for deployment in propeller.deployments))
    return replace(found, explicit=MappingProxyType({}), supported=())


def _renamed(deployment: Deployment) -> Deployment:
    return replace(deployment, id=f"propeller/{deployment.id}")


class _Judge:
    """Looks entries up in what the agents announce."""

    def __init__(self, registry: RegistryConfig, propeller: RegistryConfig, table: RoutingTable) -> None:
        self.registry = registry
        self.propeller = propeller
        self.separate = registry != propeller
        everyone = combined(registry, propeller)
        observations = {name: status.observation for name, status in table.agents.items()}
        # Natural routes: as if nobody had written anything down.
        self.natural = build_table(everyone, observations, now=table.built_at, stale_after=float("inf"))
        self.by_endpoint: dict[str, AgentStatus] = {}
        for status in self.natural.agents.values():
            self.by_endpoint.setdefault(status.deployment.endpoint, status)
        self.silent = [name for name, status in self.natural.agents.items() if status.observation.error]
        self.default = self.status(propeller.default) if propeller.default else None

    def status(self, deployment: Deployment) -> AgentStatus:
        return self.by_endpoint[deployment.endpoint]

    def announced(self, task_type: str) -> list[Route]:
        """The natural routes of a task type."""
        versions = self.natural.types.get(task_type, {})
        return [route for route in versions.values() if route.why is Why.ANNOUNCED]

    def behind_gateway(self) -> bool:
        return self.default is not None and bool(self.default.observation.gateway)

    def nobody(self, task_type: str) -> tuple[Verdict, str]:
        """The judgement of an entry for a task type that nobody announces."""
        if self.silent:
            return Verdict.UNKNOWN, f"nobody who answers announces it; not answering: {', '.join(self.silent)}"
        if self.default is None:
            return Verdict.WRONG, "nobody announces it and there is no default agent"
        if not self.default.observation.announced and not self.default.observation.gateway:
            return Verdict.NEEDED, "the default agent announces nothing, so that only this entry leads to it"
        return Verdict.WRONG, f"nobody announces {task_type}, not even the default agent"


def _types_of(status: AgentStatus) -> list[str]:
    return sorted({name for item in status.observation.announced for name, _ in item.categories})


def _explicit(judge: _Judge, task_type: str, name: str) -> tuple[Verdict, str]:
    agent = next((item for item in judge.propeller.agents if item.id == name), None)
    if agent is None:
        known = ", ".join(item.id for item in judge.propeller.agents) or "none"
        return Verdict.WRONG, f"there is no agent of that name; known are: {known}"
    status = judge.status(agent)
    if status.observation.error:
        return Verdict.UNKNOWN, f"{name} does not answer: {status.observation.error}"
    if not status.observation.announced:
        return Verdict.NEEDED, f"{name} announces nothing, so that only this entry leads to it"
    if task_type not in _types_of(status):
        return Verdict.WRONG, f"{name} does not announce it; it announces {', '.join(_types_of(status)) or 'nothing'}"
    rivals = {route.agent for route in judge.announced(task_type)} - {status.deployment.id}
    if not rivals:
        return Verdict.UNNECESSARY, f"{name} announces it and would get it anyway"
    if judge.behind_gateway() and judge.separate:
        return Verdict.WRONG, f"it leads past the gateway, which sends this type to {', '.join(sorted(rivals))}"
    return Verdict.NEEDED, f"without it {', '.join(sorted(rivals))} would get it"


def _supported(judge: _Judge, task_type: str) -> tuple[Verdict, str]:
    routes = judge.announced(task_type)
    if routes:
        return Verdict.UNNECESSARY, f"{routes[0].agent} announces it"
    if task_type in judge.propeller.explicit:
        return Verdict.SHADOWED, f"the explicit entry for {judge.propeller.explicit[task_type]} comes first"
    return judge.nobody(task_type)


def _agent(judge: _Judge, agent: Deployment) -> tuple[Verdict, str]:
    status = judge.status(agent)
    earlier = [item.id for item in judge.propeller.deployments if item.endpoint == agent.endpoint]
    if earlier[0] != agent.id:
        return Verdict.SHADOWED, f"{earlier[0]} has the same endpoint and comes first"
    if judge.separate and agent.endpoint not in {item.endpoint for item in judge.registry.deployments}:
        served = ", ".join(_types_of(status)) or "not known"
        return (
            Verdict.WRONG,
            f"the registry's configuration lacks it, so the gateway will not know its types ({served})",
        )
    if status.observation.error:
        return Verdict.UNKNOWN, f"does not answer: {status.observation.error}"
    if judge.behind_gateway() and judge.separate:
        return Verdict.UNNECESSARY, "the gateway, which is the default agent, routes to it"
    lost = {t: r.agent for t in _types_of(status) for r in judge.announced(t) if r.agent != status.deployment.id}
    explicit = {t for t, name in judge.propeller.explicit.items() if name == agent.id}
    if _types_of(status) and set(_types_of(status)) <= set(lost) and not explicit:
        others = ", ".join(f"{task_type} to {other}" for task_type, other in sorted(lost.items()))
        return Verdict.SHADOWED, f"all that it announces goes elsewhere: {others}"
    return (
        Verdict.NEEDED,
        f"serves {', '.join(_types_of(status)) or ', '.join(sorted(explicit)) or 'nothing announced'}",
    )


def _default(judge: _Judge) -> tuple[Verdict, str]:
    assert judge.default is not None  # noqa: S101 - called only when there is one
    seen = judge.default.observation
    if seen.error and not seen.itself:
        return Verdict.UNKNOWN, f"does not answer: {seen.error}"
    if seen.gateway or seen.itself:
        return Verdict.NEEDED, f"is the gateway {seen.gateway}; this entry is enough"
    return Verdict.NEEDED, "gets what no other agent serves"


def _default_plugins(task_plugins: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    entries = task_plugins.get("default-for-task-types") or []
    for item in entries if isinstance(entries, list) else [entries]:
        if isinstance(item, Mapping):
            for task_type, plugin in item.items():
                if str(plugin) in BLOCKS:
                    yield str(task_type), str(plugin)


_NOTES = {
    NoteKind.UNKNOWN: Verdict.WRONG,
    NoteKind.LOWERED: Verdict.WRONG,
    NoteKind.REPEATED: Verdict.SHADOWED,
}


def check(
    registry: RegistryConfig, propeller: RegistryConfig, task_plugins: Mapping[str, Any], table: RoutingTable
) -> list[Finding]:
    """Judge every entry that concerns agents.

    Args:
        registry: What the registry is run with.
        propeller: What the propeller is run with; may be the same.
        task_plugins: The propeller's `tasks.task-plugins`.
        table: A table of `combined(registry, propeller)`, after a round.

    Returns:
        One finding per entry, the worst first.
    """
    judge = _Judge(registry, propeller, table)
    found = [
        Finding(_NOTES[note.kind], note.path, note.value, note.accepted)
        for note in propeller.notes
        if note.kind in _NOTES
    ]
    if propeller.default is not None:
        verdict, reason = _default(judge)
        found.append(Finding(verdict, propeller.default.id, propeller.default.endpoint, reason))
    for agent in propeller.agents:
        verdict, reason = _agent(judge, agent)
        found.append(Finding(verdict, f"agents.{agent.id}", agent.endpoint, reason))
    for task_type, name in propeller.explicit.items():
        verdict, reason = _explicit(judge, task_type, name)
        found.append(Finding(verdict, f"agentForTaskTypes.{task_type}", name, reason))
    for task_type in propeller.supported:
        verdict, reason = _supported(judge, task_type)
        found.append(Finding(verdict, "supportedTaskTypes", task_type, reason))
    for task_type, plugin in _default_plugins(task_plugins):
        verdict, reason = _supported(judge, task_type)
        if task_type in propeller.explicit or task_type in propeller.supported:
            verdict, reason = Verdict.UNNECESSARY, f"{plugin} is told of it by another entry"
        found.append(Finding(verdict, f"default-for-task-types.{task_type}", plugin, reason))
    order = list(Verdict)
    return sorted(found, key=lambda finding: order.index(finding.verdict))


async def judge_files(config: Path, configmap: Path, agent_tls: Tls) -> list[Finding]:
    """Read both configurations, ask every agent once, and judge.

    Args:
        config: What the registry is run with.
        configmap: What the propeller is run with; may be the same.
        agent_tls: Files for agents with TLS that name none themselves.

    Raises:
        ProvisionerError: One of them cannot be read.
    """
    registry = load(config)
    sections = read_sections(configmap)
    propeller = registry if configmap == config else parse(sections)
    everyone = combined(registry, propeller)
    pool = ChannelPool(default_tls=agent_tls)
    now = time.monotonic()

    async def ask_one(deployment: Deployment) -> tuple[str, Observation]:
        limit = deployment.list_timeout(DEFAULT_POLL_INTERVAL)
        return deployment.id, await ask(deployment, pool, Observation(), limit=limit, now=now, metadata=())

    try:
        seen = dict(await asyncio.gather(*(ask_one(deployment) for deployment in everyone.deployments)))
    finally:
        await pool.close()
    table = build_table(everyone, seen, now=now, stale_after=0.0)
    return check(registry, propeller, sections.task_plugins, table)
