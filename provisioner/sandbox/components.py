"""Which processes a sandbox consists of, and how each shows that it works."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.sandbox import controlplane, hollow, node, relay, training
from provisioner.sandbox.api import Api, get
from provisioner.sandbox.controlplane import Locate
from provisioner.sandbox.credentials import read_token
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.process import Namespaces, ProcessSpec
from provisioner.sandbox.record import Record
from provisioner.sandbox.state import Layout, Plan

API_RELAY = "api-relay"


@dataclass(frozen=True)
class Component:
    """One process and its proof of life.

    Attributes:
        spec: The process.
        ready: Whether it does its work now; does not block for long.
        timeout: Seconds that its start may take.
    """

    spec: ProcessSpec
    ready: Callable[[], bool]
    timeout: float = 60.0


def accepts(address: str, port: int) -> Callable[[], bool]:
    """Ready when a TCP connection is accepted."""

    def ready() -> bool:
        try:
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            return False
        return True

    return ready


def accepts_at(path: Path) -> Callable[[], bool]:
    """Ready when a connection to a Unix socket is accepted."""

    def ready() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(path))
            except OSError:
                return False
        return True

    return ready


def answers(port: int, path: str, context: ssl.SSLContext | None) -> Callable[[], bool]:
    """Ready when a GET is answered with 200."""

    def ready() -> bool:
        response = get(port, path, context)
        return response is not None and response.status == 200

    return ready


def programs(*, node: bool, hollow: int, additions: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The programs that a sandbox runs.

    Args:
        node: Whether it has a real node.
        hollow: How many hollow nodes it has.
        additions: What runs beside it.
    """
    names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "busybox"]
    if node:
        names += ["kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "coredns"]
    if hollow:
        names.append("kubemark")
    return (*names, *additions)


class Components:
    """The components of one sandbox as its plan has them.

    Args:
        layout: The sandbox.
        plan: Its plan.
        machine: What the machine allows.
        locate: Name of a program -> its path.
    """

    def __init__(self, layout: Layout, plan: Plan, machine: Machine, locate: Locate) -> None:
        self._layout = layout
        self._plan = plan
        self._machine = machine
        self._locate = locate

    def api(self) -> Api:
        """A client of the API server."""
        return Api(self._plan.ports["kube-apiserver"], self._layout.pki / "ca.crt", read_token(self._layout))

    def node_ready(self, name: str) -> bool:
        """Whether a node says that it is ready."""
        response = self.api().get(f"/api/v1/nodes/{name}")
        if response is None or response.status != 200:
            return False
        conditions = response.json().get("status", {}).get("conditions") or []
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def _tls(self, authority: str, client: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._layout.pki / f"{authority}.crt"))
        if client:
            context.load_cert_chain(self._layout.pki / f"{client}.crt", self._layout.pki / f"{client}.key")
        return context

    @property
    def isolated(self) -> bool:
        """Whether the node's namespaces exist, in which the volumes are as well."""
        return self._machine.root and self._machine.may_isolate

    def store(self) -> Component:
        """The store: etcd."""
        spec = controlplane.etcd(self._layout, self._plan, self._locate)
        return Component(
            spec, answers(self._plan.ports["etcd"], "/health", self._tls("etcd-ca", "apiserver-etcd-client"))
        )

    def api_server(self) -> Component:
        """The API server."""
        spec = controlplane.apiserver(self._layout, self._plan, self._locate)

        def ready() -> bool:
            response = self.api().get("/readyz")
            return response is not None and response.status == 200

        return Component(spec, ready, timeout=120.0)

    def node_init(self) -> Component:
        """The holder of the node's namespaces; it has nothing to wait for."""
        return Component(node.init(self._layout, self._locate), lambda: True)

    def runtime(self) -> Component:
        """The container runtime: containerd."""
        return Component(node.containerd(self._layout, self._locate), accepts_at(self._layout.containerd_socket))

    def clients(self) -> list[Component]:
        """All that works once the API server does, hollow nodes apart."""
        layout, plan, locate = self._layout, self._plan, self._locate
        tls = self._tls("ca")
        manager = controlplane.controller_manager(layout, plan, locate)
        manager = replace(manager, namespaces=self._volumes_apart(Path(manager.argv[0])))
        scheduler = controlplane.scheduler(layout, plan, locate)
        found = [
            Component(manager, answers(plan.ports["kube-controller-manager"], "/healthz", tls)),
            Component(scheduler, answers(plan.ports["kube-scheduler"], "/healthz", tls)),
        ]
        if plan.node:
            dns = controlplane.coredns(layout, locate)
            found += [
                Component(dns, answers(plan.ports[controlplane.DNS_PORT], "/ready", None)),
                Component(self._api_relay(), accepts(plan.api_address, 443)),
                Component(node.kubelet(layout, plan, locate), self._kubelet_ready, timeout=120.0),
            ]
        return found

    def _kubelet_ready(self) -> bool:
        # A node that has just died still counts as ready for a while.
        healthy = answers(self._plan.ports["kubelet-healthz"], "/healthz", None)
        return healthy() and self.node_ready(node.NODE_NAME)

    def _volumes_apart(self, manager: Path) -> Namespaces | None:
        """Where the controllers make volumes, which have a fixed place in /tmp."""
        if self.isolated:
            # There it is a folder of the sandbox.
            return Namespaces(("pid", "mnt"), of=node.INIT)
        if self._machine.may_isolate:
            # Hollow nodes never look into a volume, so it may go with the process.
            return Namespaces(("user", "mnt"), mounts=hollow.private_tmp(self._layout, manager))
        return None

    def _api_relay(self) -> ProcessSpec:
        listen, to = f"{self._plan.api_address}:443", f"127.0.0.1:{self._plan.ports['kube-apiserver']}"
        return ProcessSpec(
            name=API_RELAY,
            argv=(sys.executable, "-I", "-S", relay.__file__, f"--listen={listen}", f"--to={to}"),
            files=(Path(relay.__file__),),
            port=443,
        )

    def hollow_init(self) -> Component:
        """The holder of the hollow nodes' namespaces."""
        return Component(hollow.init(self._layout, self._machine, self._locate), lambda: True)

    def hollow_relay(self, holder: Record) -> Component:
        """The hollow nodes' way to the API server."""
        return Component(hollow.api_relay(self._plan, self._machine, holder), lambda: True)

    def hollow_nodes(self) -> list[Component]:
        """The hollow nodes."""
        return [
            Component(
                hollow.node(self._layout, self._plan, self._machine, number, self._locate),
                lambda number=number: self.node_ready(hollow.name(number)),  # type: ignore[misc]
                timeout=180.0,
            )
            for number in range(1, self._plan.hollow + 1)
        ]

    def training_operator(self) -> Component:
        """The Kubeflow training operator."""
        spec = training.process(self._layout, self._plan, self._machine, self._locate)
        return Component(spec, answers(self._plan.ports[training.NAME], "/readyz", None))

    def all(self, hollow_holder: Record | None) -> list[Component]:
        """Every component, in the order in which they start.

        Args:
            hollow_holder: The holder of the hollow nodes' namespaces, if it was started.
        """
        found = [self.store(), self.api_server()]
        if self.isolated:
            found.append(self.node_init())
        if self._plan.node:
            found.append(self.runtime())
        found += self.clients()
        if self._plan.hollow:
            found.append(self.hollow_init())
            if hollow_holder is not None:
                found.append(self.hollow_relay(hollow_holder))
            found += self.hollow_nodes()
        if training.NAME in self._plan.additions:
            found.append(self.training_operator())
        return found

    def node_names(self) -> list[str]:
        """The names of the nodes that there should be."""
        real = [node.NODE_NAME] if self._plan.node else []
        return real + [hollow.name(number) for number in range(1, self._plan.hollow + 1)]
