"""What the components are told: nothing beyond loopback, nobody anonymous, the machine's facts respected."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from provisioner.sandbox import controlplane, hollow, node, planning
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.state import Layout, Plan

MACHINE = Machine("Linux", root=True, capabilities=(1 << 41) - 1, cgroup_v2=True)
PORTS = {purpose: 20000 + index for index, purpose in enumerate(planning.port_purposes())}
PLAN = Plan("x", 3, node=True, hollow=2, ports=PORTS)


def locate(name: str) -> Path:
    return Path("/bin/sh").parent / name


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout("x", tmp_path)
    made.make()
    return made


def test_every_port_of_the_control_plane_is_on_loopback_with_tls(layout: Layout) -> None:
    etcd = controlplane.etcd(layout, PLAN, locate).argv
    assert f"--listen-client-urls=https://127.0.0.1:{PORTS['etcd']}" in etcd
    assert f"--listen-peer-urls=https://127.0.0.1:{PORTS['etcd-peer']}" in etcd
    assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(etcd)
    for spec in (
        controlplane.apiserver(layout, PLAN, locate),
        controlplane.controller_manager(layout, PLAN, locate),
        controlplane.scheduler(layout, PLAN, locate),
    ):
        assert "--bind-address=127.0.0.1" in spec.argv
        assert f"--secure-port={PORTS[spec.name]}" in spec.argv
        assert any(word.startswith("--tls-cert-file=") for word in spec.argv)


def test_kubelet_knows_everybody_who_calls(layout: Layout) -> None:
    config = yaml.safe_load(node.kubelet_config(layout, PLAN, MACHINE))
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["readOnlyPort"] == 0
    assert config["address"] == "10.244.12.1"
    assert config["clusterDNS"] == ["10.244.12.1"]


@pytest.mark.parametrize("unified", [True, False])
def test_the_cgroup_version_decides_what_kubelet_is_told(layout: Layout, unified: bool) -> None:
    config = yaml.safe_load(node.kubelet_config(layout, PLAN, replace(MACHINE, cgroup_v2=unified)))
    assert config.get("failCgroupV1", True) is unified
    assert config["localStorageCapacityIsolation"] is unified


@pytest.mark.parametrize("able", [True, False])
def test_without_cap_sys_resource_nobody_lowers_an_oom_score(layout: Layout, able: bool) -> None:
    machine = MACHINE if able else replace(MACHINE, capabilities=MACHINE.capabilities & ~(1 << 24))
    config = tomllib.loads(node.containerd_config(layout, machine, locate))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is not able
    assert ("oomScoreAdj" in yaml.safe_load(node.kubelet_config(layout, PLAN, machine))) is not able


def test_nothing_of_containerd_is_outside_our_folder(layout: Layout) -> None:
    config = tomllib.loads(node.containerd_config(layout, MACHINE, locate))
    assert config["root"].startswith(str(layout.root))
    assert config["plugins"]["io.containerd.internal.v1.opt"]["path"].startswith(str(layout.root))
    mounts = {mount.target: mount.source for mount in node.init(layout, locate).namespaces.mounts}
    assert mounts[config["state"]].startswith(str(layout.root))
    assert mounts["/var/lib/kubelet"].startswith(str(layout.root))


def test_the_bridge_plugin_neither_forwards_nor_masquerades(layout: Layout) -> None:
    (plugin,) = json.loads(node.cni_config(layout, PLAN))["plugins"]
    assert (plugin["isGateway"], plugin["ipMasq"]) == (False, False)
    assert plugin["bridge"] == layout.bridge


def test_cluster_names_are_not_caught_by_the_answer_to_all_others(layout: Layout) -> None:
    blocks = [block.splitlines()[0] for block in controlplane.corefile(layout, PLAN).split("\n}\n") if block]
    assert blocks == ["cluster.local:53 in-addr.arpa:53 {", ".:53 {"]


@pytest.mark.parametrize("with_node", [True, False])
def test_hollow_nodes_are_tainted_beside_a_real_one_only(layout: Layout, with_node: bool) -> None:
    plan = replace(PLAN, node=with_node)
    argv = hollow.node(layout, plan, MACHINE, 1, locate).argv
    assert ("--register-with-taints=provisioner/hollow=true:NoSchedule" in argv) is with_node
    assert "--node-labels=provisioner/hollow=true" in argv


def test_each_component_has_an_identity_of_its_own_and_none_is_a_superuser() -> None:
    every = [*controlplane.identities(PLAN), *hollow.identities(PLAN), node.identity(PLAN)]
    assert len({identity.user for identity in every}) == len(every)
    assert {identity.group for identity in every} == {"", "system:nodes"}


def test_the_own_folder_and_programs_stay_visible_beside_a_private_tmp() -> None:
    layout = Layout("x", Path("/tmp/home"))  # noqa: S108
    targets = [mount.target for mount in hollow.private_tmp(layout, Path("/tmp/bin/kubemark"), Path("/usr/bin/x"))]  # noqa: S108
    assert targets == ["/tmp", "/tmp/bin", "/tmp/home/x"]  # noqa: S108
