from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import PermanentError, UsageError
from provisioner.sandbox import network, planning
from provisioner.sandbox.machine import Machine, node_obstacle
from provisioner.sandbox.planning import Nodes, Wish, decide_nodes
from provisioner.sandbox.state import Layout, Plan

ALL = (1 << 41) - 1
ABLE = Machine("Linux", root=True, capabilities=ALL, cgroup_v2=False, user_namespaces=True)
USER = replace(ABLE, root=False, capabilities=0)
BARE = replace(USER, user_namespaces=False)
FORMER = Plan("x", 0, node=True, hollow=3, ports={})


@pytest.mark.parametrize(
    ("machine", "word"),
    [
        (USER, "root"),
        (replace(ABLE, capabilities=ALL & ~(1 << 21)), "CAP_SYS_ADMIN"),
        (replace(ABLE, capabilities=ALL & ~(1 << 12)), "CAP_NET_ADMIN"),
        (replace(ABLE, missing_tools=("ip",)), "ip"),
    ],
)
def test_the_obstacle_is_named(machine: Machine, word: str) -> None:
    assert word in node_obstacle(machine)


def test_without_cap_sys_resource_a_node_runs() -> None:
    machine = replace(ABLE, capabilities=ALL & ~(1 << 24))
    assert node_obstacle(machine) == ""
    assert not machine.may_lower_oom_score


@pytest.mark.parametrize(
    ("former", "wish", "machine", "node", "hollow", "noted"),
    [
        (None, Wish(), ABLE, True, 0, False),
        (None, Wish(hollow=2), ABLE, True, 2, False),
        (None, Wish(node=False), ABLE, False, 0, True),
        (None, Wish(node=False, hollow=2), ABLE, False, 2, False),
        (FORMER, Wish(), ABLE, True, 3, False),
        (FORMER, Wish(hollow=0), ABLE, True, 0, False),
        (FORMER, Wish(node=False), ABLE, False, 3, False),
        (replace(FORMER, node=False), Wish(), ABLE, False, 3, False),
        (replace(FORMER, node=False), Wish(node=True), ABLE, True, 3, False),
        (None, Wish(), USER, False, 1, True),
        (None, Wish(node=True, hollow=0), USER, False, 0, True),
        (None, Wish(), BARE, False, 0, True),
    ],
)
def test_nodes_follow_the_wish_the_past_and_the_machine(former, wish, machine, node, hollow, noted) -> None:
    decided = decide_nodes(former, wish, machine)
    assert (decided.node, decided.hollow, bool(decided.note)) == (node, hollow, noted)


def test_another_system_is_pointed_to_another_cluster() -> None:
    with pytest.raises(UsageError, match="Darwin") as caught:
        decide_nodes(None, Wish(), replace(ABLE, system="Darwin"))
    assert "--context" in caught.value.hint


@pytest.mark.parametrize("hollow", [-1, 1001])
def test_the_number_of_hollow_nodes_is_bounded(hollow: int) -> None:
    with pytest.raises(UsageError, match=str(hollow)):
        decide_nodes(None, Wish(hollow=hollow), ABLE)


def test_hollow_nodes_that_cannot_be_kept_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="namespace"):
        decide_nodes(None, Wish(hollow=1), BARE)


def test_surplus_is_what_the_plan_has_no_place_for() -> None:
    every = ["etcd", "kube-apiserver", "node-init", "kubelet", "containerd", "coredns", "api-relay", "hollow-init"]
    every += ["hollow-relay", "hollow-1", "hollow-2", "hollow-10"]
    plan = Plan("x", 0, node=True, hollow=2)
    assert planning.surplus(every, plan) == ["hollow-10"]
    gone = planning.surplus(every, replace(plan, node=False, hollow=0))
    assert set(every) - set(gone) == {"etcd", "kube-apiserver"}


def test_a_sandbox_without_a_node_keeps_the_holder_of_its_volumes() -> None:
    assert planning.surplus(["etcd", "node-init"], Plan("x", 0, node=False, hollow=0)) == []


def test_the_address_blocks_do_not_overlap() -> None:
    plans = [Plan("x", block, True, 0) for block in range(network.BLOCKS)]
    every = [net for plan in plans for net in (plan.pod_network, plan.service_network)]
    assert len({address for net in every for address in (net[0], net[-1])}) == 2 * len(every)


@given(
    st.lists(st.integers(0, 2**32 - 1), max_size=20),
    st.integers(16, 32),
    st.sets(st.integers(0, network.BLOCKS - 1), max_size=10),
)
def test_a_block_collides_with_nothing(addresses: list[int], length: int, taken: set[int]) -> None:
    used = [IPv4Network((address, length), strict=False) for address in addresses]
    block = network.choose_block(used, taken)
    plan = Plan("x", block, True, 0)
    assert block not in taken
    assert not any(net.overlaps(plan.pod_network) or net.overlaps(plan.service_network) for net in used)


def test_no_block_left_is_said() -> None:
    with pytest.raises(PermanentError, match="in use"):
        network.choose_block([IPv4Network("10.0.0.0/8")], [])


def test_ports_are_kept_unless_somebody_else_has_taken_them(tmp_path: Path) -> None:
    layout = Layout("x", tmp_path)
    nodes = Nodes(node=True, hollow=0)
    former = planning.make_plan(layout, None, nodes, isolated=False, running=lambda _: False)
    assert len(set(former.ports.values())) == len(planning.port_purposes())
    assert planning.make_plan(layout, former, nodes, isolated=False, running=lambda _: False) == former
    with network.socket.socket() as foreign:
        foreign.bind(("127.0.0.1", former.ports["etcd"]))
        foreign.listen()
        ours = planning.make_plan(layout, former, nodes, isolated=False, running=lambda name: name == "etcd")
        assert ours == former
        moved = planning.make_plan(layout, former, nodes, isolated=False, running=lambda _: False)
    changed = {purpose for purpose in former.ports if former.ports[purpose] != moved.ports[purpose]}
    assert changed == {"etcd"}


def test_another_sandboxs_ports_and_addresses_are_left_alone(tmp_path: Path) -> None:
    nodes = Nodes(node=True, hollow=0)
    plans = []
    for name in ("a", "b", "c"):
        layout = Layout(name, tmp_path)
        layout.make()
        plans.append(planning.make_plan(layout, None, nodes, isolated=False, running=lambda _: False))
        layout.save(plans[-1])
    assert len({plan.network for plan in plans}) == 3
    assert len({port for plan in plans for port in plan.ports.values()}) == 3 * len(planning.port_purposes())


def test_a_sandbox_that_cannot_be_read_keeps_no_other_from_starting(tmp_path: Path) -> None:
    damaged, good, layout = (Layout(name, tmp_path) for name in ("damaged", "good", "x"))
    for other in (damaged, good):
        other.make()
    damaged.plan.write_text('{"of": "another version"}')
    plan = planning.make_plan(good, None, Nodes(node=True, hollow=0), isolated=False, running=lambda _: False)
    good.save(plan)
    assert planning.other_plans(layout) == [plan]


OPERATOR = ("training-operator",)
BESIDE = replace(FORMER, additions=OPERATOR)


@pytest.mark.parametrize(
    ("former", "wish", "beside"),
    [
        (None, Wish(), ()),
        (None, Wish(additions=OPERATOR), OPERATOR),
        (FORMER, Wish(additions=OPERATOR), OPERATOR),
        (BESIDE, Wish(), OPERATOR),
        (BESIDE, Wish(additions=OPERATOR), OPERATOR),
        (BESIDE, Wish(without=OPERATOR), ()),
        (None, Wish(without=OPERATOR), ()),
    ],
)
def test_additions_stay_until_they_are_not_wanted(former, wish: Wish, beside: tuple[str, ...]) -> None:
    assert planning.decide_additions(former, wish, ABLE) == beside


@pytest.mark.parametrize(
    ("wish", "machine", "words"),
    [
        (Wish(additions=("operator",)), ABLE, "no addition 'operator'"),
        (Wish(without=("operator",)), ABLE, "no addition 'operator'"),
        (Wish(additions=OPERATOR, without=OPERATOR), ABLE, "both wanted and not"),
        (Wish(additions=OPERATOR), BARE, "needs root or user namespaces"),
    ],
)
def test_an_addition_that_cannot_be_is_refused(wish: Wish, machine: Machine, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        planning.decide_additions(None, wish, machine)


def test_an_addition_that_is_not_wanted_is_ended() -> None:
    assert planning.surplus(["etcd", *OPERATOR], replace(BESIDE, additions=())) == list(OPERATOR)
    assert planning.surplus(["etcd", *OPERATOR], BESIDE) == []
