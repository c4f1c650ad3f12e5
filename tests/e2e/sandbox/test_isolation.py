"""Where hollow nodes live: one way out, and that leads to the API server; as root and with user namespaces alike."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from provisioner.sandbox import hollow
from provisioner.sandbox.binaries import path_of
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.process import Namespaces, Processes, ProcessSpec
from provisioner.sandbox.state import Layout, Plan

ROOT = Machine("Linux", root=True, capabilities=(1 << 41) - 1, cgroup_v2=False, user_namespaces=True)
USER = Machine("Linux", root=False, capabilities=0, cgroup_v2=False, user_namespaces=True)


@pytest.fixture
def server() -> Iterator[int]:
    """Says one line to whoever calls, as an API server would say more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.sendall(b"the server answers\n")
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("machine", [ROOT, USER], ids=["root", "user"])
def test_the_one_way_out_leads_to_the_api_server(tmp_path, server: int, machine: Machine, until) -> None:
    layout = Layout("x", tmp_path)
    layout.make()
    hollow.write_hosts(layout)
    plan = Plan("x", 0, node=False, hollow=1, ports={"kube-apiserver": server})
    processes = Processes(layout.records, layout.logs)
    busybox = str(path_of("busybox"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        script = (
            f"until {busybox} nc 127.0.0.1 {server} </dev/null; do {busybox} sleep 0.05; done; "
            f"{busybox} nc -w 2 127.0.0.1 {other.getsockname()[1]} </dev/null || echo no other; "
            f"{busybox} ping -c 1 -w 60 hollow-7 >/dev/null && echo itself; "
            f"echo processes $({busybox} ps | {busybox} wc -l); {busybox} touch /tmp/mine; echo done; "
            f"{busybox} sleep 600"
        )
        inside = ProcessSpec(
            "inside", (busybox, "sh", "-c", script), namespaces=Namespaces(hollow._kinds(machine), of=hollow.INIT)
        )
        try:
            processes.ensure(hollow.init(layout, machine, path_of))
            processes.ensure(hollow.api_relay(plan, machine, processes.record(hollow.INIT)))
            processes.ensure(inside)
            log = processes.log("inside")
            until("the caller is done", lambda: log.exists() and "done" in log.read_text())
            said = log.read_text()
            assert "the server answers\n" in said
            assert "no other\n" in said
            assert "itself\n" in said
            assert int(said.split("processes ")[1].split()[0]) < 10
        finally:
            processes.kill_all()
