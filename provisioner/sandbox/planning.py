"""Decide what a sandbox is to be, from what it was, what is asked and what the machine allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.errors import PermanentError, UsageError
from provisioner.sandbox import controlplane, hollow, network, node, training
from provisioner.sandbox.machine import Machine, node_obstacle
from provisioner.sandbox.state import Layout, Plan, layouts

ADDITIONS = (training.NAME,)
"""What can run beside a cluster."""


@dataclass(frozen=True)
class Wish:
    """What is asked of `up`.

    Attributes:
        node: Whether there shall be a real node; None for "as before, or where possible".
        hollow: How many hollow nodes; None for "as before".
        additions: What shall run beside the cluster, with what does already.
        without: What shall not.
    """

    node: bool | None = None
    hollow: int | None = None
    additions: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nodes:
    """Which nodes a sandbox gets.

    Attributes:
        node: Whether a real one.
        hollow: How many hollow ones.
        note: What the person should know about it, or "".
    """

    node: bool
    hollow: int
    note: str = ""


def decide_nodes(former: Plan | None, wish: Wish, machine: Machine) -> Nodes:
    """Decide which nodes a sandbox gets.

    Args:
        former: The plan so far, or None for a new sandbox.
        wish: What is asked.
        machine: What the machine allows.

    Raises:
        UsageError: The machine does not run Linux, the number of hollow nodes
            is out of bounds, or they cannot be kept apart here.
    """
    if machine.system != "Linux":
        raise UsageError(
            f"a sandbox needs Linux, this is {machine.system}",
            reason="UnsupportedSystem",
            hint="use any other cluster: every command accepts --context",
        )
    if wish.hollow is not None and not 0 <= wish.hollow <= hollow.LIMIT:
        raise UsageError(f"--hollow accepts 0 to {hollow.LIMIT} (got {wish.hollow})", reason="InvalidHollow")
    obstacle = node_obstacle(machine)
    wanted = wish.node if wish.node is not None else (former.node if former else True)
    count = wish.hollow if wish.hollow is not None else (former.hollow if former else 0)
    note = ""
    if wanted and obstacle:
        if wish.hollow is None and count == 0 and machine.may_isolate:
            count = 1
        nodes = f"{count} hollow node(s) instead, on which pods only seem to run" if count else "no node at all"
        note = f"{obstacle}; the sandbox gets {nodes}"
    elif not wanted and count == 0:
        note = "the sandbox gets no node: pods stay Pending"
    if count and not machine.may_isolate:
        raise UsageError(
            "hollow nodes need root or user namespaces: they listen without asking for credentials, so they are kept "
            "in a network namespace of their own",
            reason="CannotIsolate",
            hint="run as root on Linux, or allow user namespaces",
        )
    return Nodes(wanted and not obstacle, count, note)


def decide_additions(former: Plan | None, wish: Wish, machine: Machine) -> tuple[str, ...]:
    """Decide what runs beside the cluster.

    Args:
        former: The plan so far, or None for a new sandbox.
        wish: What is asked.
        machine: What the machine allows.

    Raises:
        UsageError: It does not exist, is both wanted and not, or cannot run here.
    """
    for name in (*wish.additions, *wish.without):
        if name not in ADDITIONS:
            raise UsageError(
                f"there is no addition {name!r}", reason="UnknownAddition", hint=f"there is {', '.join(ADDITIONS)}"
            )
    both = sorted(set(wish.additions) & set(wish.without))
    if both:
        raise UsageError(f"{both[0]} is both wanted and not wanted", reason="Contradiction")
    chosen = ({*former.additions, *wish.additions} if former else set(wish.additions)) - set(wish.without)
    obstacle = training.obstacle(machine) if training.NAME in chosen else ""
    if obstacle:
        raise UsageError(obstacle, reason="CannotIsolate", hint="run as root on Linux, or allow user namespaces")
    return tuple(sorted(chosen))


def port_purposes() -> tuple[str, ...]:
    """Every purpose that a sandbox needs a port on loopback for."""
    return (*controlplane.PORTS, controlplane.DNS_PORT, *node.PORTS, *training.PORTS)


def other_plans(layout: Layout) -> list[Plan]:
    """The plans of all other sandboxes of this home that can be read.

    One that cannot, because it is damaged or of another version, must not keep
    the others from starting. What it holds is seen at the machine, where it
    runs; and where it does not, it has to be taken down before it can again.
    """
    plans = []
    for other in layouts(layout.home):
        with suppress(PermanentError):
            plan = other.load() if other.name != layout.name else None
            plans += [] if plan is None else [plan]
    return plans


def make_plan(
    layout: Layout,
    former: Plan | None,
    nodes: Nodes,
    additions: tuple[str, ...] = (),
    *,
    isolated: bool,
    running: Callable[[str], bool],
) -> Plan:
    """Choose addresses and ports, keeping those that a sandbox has.

    A port that somebody else has taken while its process was down is replaced.
    Must be called inside `network.allocation`.

    Args:
        layout: The sandbox.
        former: Its plan so far.
        nodes: Which nodes it gets.
        additions: What runs beside it.
        isolated: Whether the machine's addresses can be looked up and matter.
        running: Whether the process of a port's purpose runs.
    """
    others = other_plans(layout)
    taken = {port for plan in others for port in plan.ports.values()}
    if former is None:
        used = network.networks_in_use() if isolated else []
        block = network.choose_block(used, [plan.network for plan in others])
        ports = network.choose_ports(port_purposes(), taken)
        return Plan(layout.name, block, nodes.node, nodes.hollow, ports, time.time(), additions)
    lost = [
        purpose
        for purpose in port_purposes()
        if purpose not in former.ports or not (running(_process_of(purpose)) or network.is_free(former.ports[purpose]))
    ]
    ports = former.ports | network.choose_ports(lost, taken | set(former.ports.values()))
    return replace(former, node=nodes.node, hollow=nodes.hollow, ports=ports, additions=additions)


def _process_of(purpose: str) -> str:
    if purpose in training.PORTS:
        return training.NAME
    return {"etcd-peer": "etcd", controlplane.DNS_PORT: "coredns", "kubelet-healthz": "kubelet"}.get(purpose, purpose)


def surplus(recorded: Iterable[str], plan: Plan) -> list[str]:
    """The recorded processes that the plan has no place for, in the order in which they are to be ended.

    Args:
        recorded: Names of processes on record.
        plan: What the sandbox is to be.
    """
    unwanted = []
    on_record = sorted(recorded)
    # Pods live on with the holder of their namespaces, whatever becomes of kubelet.
    parts = ("kubelet", "containerd", "coredns", "api-relay", node.INIT) if "kubelet" in on_record else ()
    for process in on_record:
        number = hollow.number_of(process)
        of_hollow = process in (hollow.INIT, hollow.RELAY)
        of_node = process in parts
        if (
            (number is not None and number > plan.hollow)
            or (of_hollow and plan.hollow == 0)
            or (of_node and not plan.node)
            or (process in ADDITIONS and process not in plan.additions)
        ):
            unwanted.append(process)
    return unwanted


def stale_files(layout: Layout, plan: Plan) -> list[Path]:
    """Credentials of hollow nodes that the plan does not have."""
    found = []
    for path in [*layout.config.glob("hollow-*.kubeconfig"), *layout.pki.glob("hollow-*")]:
        number = hollow.number_of(path.name.partition(".")[0])
        if number is not None and number > plan.hollow:
            found.append(path)
    return found
