"""How a sandbox lives: repaired when killed, changed while it runs, several at once, gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.sandbox import Sandbox, network, node
from provisioner.sandbox.process import Processes
from provisioner.sandbox.state import Layout


def pids(sandbox: Sandbox) -> dict[str, int | None]:
    return {item.name: item.pid for item in sandbox.status().processes}


def test_up_again_changes_nothing(cluster) -> None:
    before, said = pids(cluster.sandbox), []
    assert cluster.sandbox.up(progress=said.append).ready
    assert said == []
    assert pids(cluster.sandbox) == before


@pytest.mark.parametrize(
    "victim",
    [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "coredns",
        "api-relay",
        "containerd",
        "kubelet",
        "node-init",
    ],
)
def test_up_repairs_what_was_killed_and_pods_go_on(cluster, until, victim: str) -> None:
    if "survivor" not in cluster.pods():
        cluster.run("survivor")
        until("the pod is ready", lambda: cluster.ready("survivor"))
    before = pids(cluster.sandbox)
    os.kill(before[victim], signal.SIGKILL)
    until("it is seen to be dead", lambda: not cluster.sandbox.status().ready)
    assert cluster.sandbox.up().ready
    after = pids(cluster.sandbox)
    changed = {name for name in after if before[name] != after[name]}
    inside = {"containerd", "kubelet", "kube-controller-manager"} if victim == "node-init" else set()
    assert changed == {victim} | inside
    until("the pod is ready again", lambda: cluster.ready("survivor"))
    assert until("exec works", lambda: cluster.execute("survivor", "echo alive")) == "alive\n"
    cluster.run("next", "echo next", restartPolicy="Never")
    assert cluster.finished("next") == "next\n"
    cluster.delete("next")


def test_a_renewed_certificate_is_taken_up(cluster) -> None:
    before = pids(cluster.sandbox)
    (cluster.sandbox.kubeconfig.parent / "pki" / "kube-scheduler.crt").unlink()
    assert cluster.sandbox.up().ready
    after = pids(cluster.sandbox)
    assert {name for name in after if before[name] != after[name]} == {"kube-scheduler"}


def test_hollow_nodes_come_and_go_and_ordinary_pods_keep_off_them(cluster, until) -> None:
    assert cluster.sandbox.up(hollow=2).ready
    nodes = cluster.nodes()
    assert set(nodes) == {"node-1", "hollow-1", "hollow-2"}
    assert nodes["hollow-1"].metadata.labels["provisioner/hollow"] == "true"
    cluster.run("ordinary")
    tolerant = {"key": "provisioner/hollow", "operator": "Exists"}
    for number in range(4):
        cluster.run(f"hollow-{number}", nodeSelector={"provisioner/hollow": "true"}, tolerations=[tolerant])
    until("all are ready", lambda: all(cluster.ready(name) for name in cluster.pods()))
    assert cluster.node_of("ordinary") == "node-1"
    assert {cluster.node_of(f"hollow-{number}") for number in range(4)} <= {"hollow-1", "hollow-2"}

    said: list[str] = []
    assert cluster.sandbox.up(progress=said.append).ready
    assert said == []
    os.kill(pids(cluster.sandbox)["hollow-2"], signal.SIGKILL)
    assert cluster.sandbox.up().ready
    assert cluster.sandbox.up(hollow=1).ready
    assert set(cluster.nodes()) == {"node-1", "hollow-1"}
    assert cluster.sandbox.up(hollow=0).ready
    assert set(cluster.nodes()) == {"node-1"}
    assert not [name for name in pids(cluster.sandbox) if name.startswith("hollow")]
    until("the pods of hollow nodes are gone", lambda: not any(name.startswith("hollow") for name in cluster.pods()))
    cluster.delete("ordinary")


def test_a_hollow_node_can_be_reached_by_nobody(cluster) -> None:
    assert cluster.sandbox.up(hollow=1).ready
    pid = pids(cluster.sandbox)["hollow-1"]
    assert Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    interfaces = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    assert "lo" in {line.split(":")[0].strip() for line in interfaces}
    routes = Path(f"/proc/{pid}/net/route").read_text().splitlines()[1:]
    assert {line.split()[0] for line in routes} == {"lo"}
    cluster.sandbox.up(hollow=0)


def test_up_after_a_reboot(cluster, until) -> None:
    """All processes, mounts, records' meaning and the bridge are gone, as after a power cut."""
    if "survivor" not in cluster.pods():
        cluster.run("survivor")
        until("the pod is ready", lambda: cluster.ready("survivor"))
    layout = Layout(cluster.sandbox.name, cluster.sandbox.kubeconfig.parent.parent)
    records = {path: path.read_text() for path in layout.records.iterdir()}
    Processes(layout.records, layout.logs).kill_all()
    network.remove_bridge(layout.bridge)
    for path, text in records.items():
        path.write_text(json.dumps(json.loads(text) | {"boot": "another", "pid": os.getpid()}))
    assert not cluster.sandbox.status().ready
    assert cluster.sandbox.up().ready
    until("the pod is ready again", lambda: cluster.ready("survivor"))
    assert until("exec works", lambda: cluster.execute("survivor", "echo alive")) == "alive\n"
    assert cluster.core.read_namespaced_pod("survivor", "default").status.container_statuses[0].restart_count > 0


def test_up_killed_on_its_way_leaves_nothing_that_down_does_not_know(tmp_path_factory) -> None:
    base = tmp_path_factory.mktemp("sk")
    home = base / "provisioner" / "sandbox"
    command = [sys.executable, "-m", "provisioner", "sandbox", "up", "--name", "killed"]
    environment = {**os.environ, "XDG_STATE_HOME": str(base)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        seen = any("started kube-apiserver" in line for line in process.stderr)
        process.kill()
    try:
        assert seen
        assert processes_of(home)
    finally:
        assert Sandbox("killed", home=home).down()
    assert processes_of(home) == set()
    assert list(home.iterdir()) == []


SETTINGS = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")


def settings() -> dict[str, str]:
    """What a kubelet or a CNI plugin would change for the whole machine."""
    return {name: Path("/proc/sys", name).read_text() for name in SETTINGS}


def processes_of(home: Path) -> set[str]:
    """Every process of the machine that was started from this folder or sees it mounted."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        if str(home) in command or str(home) in mounts:
            found.add(f"{process.name} {command}")
    return found


def interfaces_of(layout: Layout) -> set[Path]:
    """The bridge and what is plugged into it."""
    bridge = Path("/sys/class/net", layout.bridge)
    return {bridge, *(Path("/sys/class/net", port.name) for port in (bridge / "brif").glob("*"))}


@pytest.mark.parametrize("crashed", [False, True], ids=["running", "crashed"])
def test_two_at_once_and_the_second_goes_without_a_trace(cluster, until, tmp_path_factory, make, crashed: bool) -> None:
    home = tmp_path_factory.mktemp("sc")
    before = settings()
    other, layout = Sandbox("test-sandbox", home=home), Layout("test-sandbox", home)
    try:
        assert other.up(hollow=1).ready
        second = make(other)
        second.core.create_namespaced_persistent_volume_claim(
            "default",
            {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
            },
        )
        second.run(
            "worker",
            "echo x > /data/x; setsid sleep 3600 & sleep 3600",
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
            ],
            mounts=[{"name": "data", "mountPath": "/data"}, {"name": "memory", "mountPath": "/memory"}],
        )
        until("the pod is ready", lambda: second.ready("worker"))
        assert cluster.sandbox.status().ready
        assert "worker" not in cluster.pods()
        assert processes_of(home)
        interfaces, groups = interfaces_of(layout), node.cgroup_folders(node.container_ids(layout))
        assert len(interfaces) == 2
        assert groups
        assert all(path.exists() for path in [*interfaces, *groups])
        if crashed:
            for name, pid in pids(other).items():
                if name not in ("node-init", "kube-controller-manager"):
                    os.kill(pid, signal.SIGKILL)
    finally:
        assert other.down()
    assert not other.down()
    assert processes_of(home) == set()
    assert not [path for path in [*interfaces, *groups] if path.exists()]
    assert str(home) not in Path("/proc/self/mountinfo").read_text()
    assert list(home.iterdir()) == []
    assert settings() == before
    assert not Path("/opt/containerd").exists()
    assert cluster.sandbox.status().ready
