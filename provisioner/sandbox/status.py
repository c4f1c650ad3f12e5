"""What a sandbox looks like from outside: processes, nodes, and one word about the whole."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from provisioner.sandbox import hollow
from provisioner.sandbox.api import Api
from provisioner.sandbox.binaries import path_of
from provisioner.sandbox.components import Component, Components
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.process import Processes
from provisioner.sandbox.record import is_alive
from provisioner.sandbox.state import Layout, Plan


@dataclass(frozen=True)
class ProcessStatus:
    """One process.

    Attributes:
        name: Of the process.
        state: `ready`, `running` (but not doing its work), `dead` or `missing`.
        pid: While it runs.
        uptime: Seconds, while it runs.
        port: That it listens on, if any.
        log: Its log file.
    """

    name: str
    state: Literal["ready", "running", "dead", "missing"]
    pid: int | None
    uptime: int | None
    port: int | None
    log: Path


@dataclass(frozen=True)
class NodeStatus:
    """One node.

    Attributes:
        name: Of the node.
        ready: Whether it says so.
        hollow: Whether pods only seem to run on it.
        message: What it says about itself.
    """

    name: str
    ready: bool
    hollow: bool
    message: str


@dataclass(frozen=True)
class SandboxStatus:
    """A whole sandbox.

    Attributes:
        name: Of the sandbox.
        ready: Whether every process and every node is.
        message: Why not, or "ready".
        kubeconfig: The file for its clients.
        context: The context in it.
        processes: Each process that there should be.
        nodes: Each node that the API server knows.
    """

    name: str
    ready: bool
    message: str
    kubeconfig: Path
    context: str
    processes: tuple[ProcessStatus, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()

    @classmethod
    def broken(cls, layout: Layout, message: str) -> SandboxStatus:
        """The status of a sandbox whose plan cannot be read."""
        return cls(layout.name, False, message, layout.kubeconfig, f"sandbox-{layout.name}")


def observe(layout: Layout, plan: Plan, machine: Machine, processes: Processes) -> SandboxStatus:
    """Look at every process and node of a sandbox.

    Args:
        layout: The sandbox.
        plan: Its plan.
        machine: What the machine allows.
        processes: Its process records.
    """
    components = Components(layout, plan, machine, path_of)
    wanted = components.all(processes.record(hollow.INIT))
    with ThreadPoolExecutor(8) as pool:
        looked_at = tuple(pool.map(lambda component: _look_at(component, processes), wanted))
    nodes = _nodes(components.api())
    names = {node.name for node in nodes}
    missing = [name for name in components.node_names() if name not in names]
    troubles = [f"{item.name} is {item.state}" for item in looked_at if item.state != "ready"]
    troubles += [f"node {node.name} is not ready" for node in nodes if not node.ready]
    troubles += [f"node {name} is missing" for name in missing]
    message = "; ".join(troubles[:3]) + (f"; and {len(troubles) - 3} more" if len(troubles) > 3 else "")
    return SandboxStatus(
        name=plan.name,
        ready=not troubles,
        message=message or "ready",
        kubeconfig=layout.kubeconfig,
        context=f"sandbox-{plan.name}",
        processes=looked_at,
        nodes=nodes,
    )


def _look_at(component: Component, processes: Processes) -> ProcessStatus:
    spec = component.spec
    log = processes.log(spec.name)
    record = processes.record(spec.name)
    if record is None:
        return ProcessStatus(spec.name, "missing", None, None, spec.port, log)
    if not is_alive(record):
        return ProcessStatus(spec.name, "dead", None, None, spec.port, log)
    state: Literal["ready", "running"] = "ready" if component.ready() else "running"
    return ProcessStatus(spec.name, state, record.pid, int(time.time() - record.since), spec.port, log)


def _nodes(api: Api) -> tuple[NodeStatus, ...]:
    response = api.get("/api/v1/nodes")
    if response is None or response.status != 200:
        return ()
    found = []
    for item in response.json()["items"]:
        conditions = item.get("status", {}).get("conditions") or []
        ready: dict[str, str] = next((condition for condition in conditions if condition["type"] == "Ready"), {})
        facts = item["metadata"]
        found.append(
            NodeStatus(
                name=facts["name"],
                ready=ready.get("status") == "True",
                hollow=hollow.LABEL in facts.get("labels", {}),
                message=ready.get("message", "has not reported yet"),
            )
        )
    return tuple(sorted(found, key=lambda node: node.name))
