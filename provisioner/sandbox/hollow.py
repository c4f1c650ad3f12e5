"""Hollow nodes: kubelets without containers, to see how the control plane bears a fleet.

A hollow kubelet listens on every interface and asks nobody for credentials.
So they all live in a network namespace that has no interface but loopback;
their one way out is a relay to the API server.

Ordinary pods must not land on a hollow node, where they would seem to run. So
beside a real node they carry the taint `provisioner/hollow=true:NoSchedule`;
a pod that wants one tolerates it and selects the label `provisioner/hollow=true`.
Where there is no real node they are all there is, and carry the label alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from provisioner.sandbox import relay
from provisioner.sandbox.api import Api
from provisioner.sandbox.controlplane import Locate
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.pki import Identity
from provisioner.sandbox.process import Mount, Namespaces, ProcessSpec
from provisioner.sandbox.record import Record
from provisioner.sandbox.state import Layout, Plan

LABEL = "provisioner/hollow"
INIT = "hollow-init"
RELAY = "hollow-relay"
LIMIT = 1000
_FIRST_PORT = 11000
_HOSTS = "hollow-hosts"
# Documentation addresses (RFC 5737): nobody's, and a kubelet does not start without one that is not loopback.
_ADDRESS = "192.0.2.1"


def name(number: int) -> str:
    """The name of a hollow node, counted from 1."""
    return f"hollow-{number}"


def number_of(process: str) -> int | None:
    """Which hollow node a process is, or None when it is none."""
    prefix, _, rest = process.partition("-")
    return int(rest) if prefix == "hollow" and rest.isdigit() else None


def identities(plan: Plan) -> tuple[Identity, ...]:
    """A node's own name for each."""
    names = [name(number) for number in range(1, plan.hollow + 1)]
    return tuple(Identity(node, f"system:node:{node}", "system:nodes") for node in names)


def _kinds(machine: Machine) -> tuple[str, ...]:
    return ("pid", "mnt", "net") if machine.root else ("user", "pid", "mnt", "net")


def write_hosts(layout: Layout) -> None:
    """Write the names of all hollow nodes there can be.

    A kubelet looks its own name up at each report. There is no DNS where they
    live, and without this file each look-up would take ten seconds.
    """
    lines = [f"{_ADDRESS} {name(number)}\n" for number in range(1, LIMIT + 1)]
    (layout.config / _HOSTS).write_text("127.0.0.1 localhost\n" + "".join(lines))


def private_tmp(layout: Layout, *programs: Path) -> tuple[Mount, ...]:
    """An empty /tmp for programs with files in fixed places there.

    Our own folder and the programs' stay visible, in case they are in /tmp as well.

    Args:
        layout: The sandbox.
        programs: What runs there.
    """
    folders = sorted({layout.root, *(program.parent for program in programs)})
    hidden = [str(folder) for folder in folders if folder.is_relative_to("/tmp")]  # noqa: S108
    return (Mount("tmpfs", "/tmp"), *(Mount("bind", folder, folder) for folder in hidden))  # noqa: S108


def init(layout: Layout, machine: Machine, locate: Locate) -> ProcessSpec:
    """The process that holds the namespaces."""
    busybox = str(locate("busybox"))
    steps = (
        "ip link set lo up",
        f"ip address add {_ADDRESS}/32 dev lo",
        "ip route add default dev lo",
    )
    script = " && ".join(f"{busybox} {step}" for step in steps)
    hosts = Mount("bind", "/etc/hosts", str(layout.config / _HOSTS))
    mounts = (*private_tmp(layout, locate("busybox"), locate("kubemark")), hosts, Mount("proc", "/proc"))
    return ProcessSpec(
        name=INIT,
        argv=(busybox, "sh", "-c", f"{script} && {{ {busybox} sleep 2147483647 & wait; }}"),
        namespaces=Namespaces(_kinds(machine), mounts=mounts),
        grace=0,
    )


def api_relay(plan: Plan, machine: Machine, holder: Record) -> ProcessSpec:
    """Their way to the API server, which they reach under its own address.

    Args:
        plan: The sandbox's plan.
        machine: What the machine allows.
        holder: The process that holds their namespaces; another one means
            another relay.
    """
    server = f"127.0.0.1:{plan.ports['kube-apiserver']}"
    kinds = ",".join(kind for kind in _kinds(machine) if kind in ("user", "net"))
    program = (sys.executable, "-I", "-S", relay.__file__)
    return ProcessSpec(
        name=RELAY,
        argv=(*program, f"--listen={server}", f"--to={server}", f"--inside={holder.pid}", f"--kinds={kinds}"),
        files=(Path(relay.__file__),),
        environment={"HOLDER": f"{holder.boot}/{holder.start}"},
    )


def node(layout: Layout, plan: Plan, machine: Machine, number: int, locate: Locate) -> ProcessSpec:
    """One hollow node."""
    config = layout.config / f"{name(number)}.kubeconfig"
    taints = [f"--register-with-taints={LABEL}=true:NoSchedule"] if plan.node else []
    return ProcessSpec(
        name=name(number),
        argv=(
            str(locate("kubemark")),
            "--morph=kubelet",
            f"--name={name(number)}",
            f"--kubeconfig={config}",
            f"--kubelet-port={_FIRST_PORT + number}",
            "--kubelet-read-only-port=0",
            "--max-pods=1000",
            "--use-host-image-service=false",
            f"--node-labels={LABEL}=true",
            *taints,
        ),
        files=(config,),
        environment={"TMPDIR": "/tmp"},  # noqa: S108 - in the namespace
        namespaces=Namespaces(_kinds(machine), of=INIT),
        grace=0,
    )


def correct_taints(api: Api, plan: Plan) -> None:
    """Bring the taints in line when a real node has come or gone since the hollow ones registered."""
    ours = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
    for item in api.list(f"/api/v1/nodes?labelSelector={LABEL}"):
        taints: list[dict[str, Any]] = item["spec"].get("taints") or []
        others = [taint for taint in taints if taint["key"] != LABEL]
        wanted = [*others, ours] if plan.node else others
        if wanted != taints and len(wanted) != len(taints):
            api.patch(f"/api/v1/nodes/{item['metadata']['name']}", {"spec": {"taints": wanted}})
