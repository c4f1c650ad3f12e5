"""The value that the next task takes: its addresses, its variables, and waiting for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from flytekit import ContainerTask, FlyteContext, kwtypes, workflow
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import Literal
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster.slices import pod_addresses
from provisioner.errors import PermanentError, TransientError
from provisioner.flyte import DataService, DataServiceConfig, DataServiceTask, Endpoint, reach
from provisioner.spec import Port

IN_A_POD = "KUBERNETES_SERVICE_HOST"


def service(ports: dict[str, int], replicas: int, name: str = "g", stack: str = "g") -> DataService:
    dns = f"{name}.ns.svc.cluster.local"
    endpoints = [
        Endpoint(i, f"{name}-{i}.{dns}", number, port) for i in range(replicas) for port, number in ports.items()
    ]
    return DataService(name, "ns", dns, stack, ports, endpoints)


@pytest.fixture
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IN_A_POD, "10.0.0.1")


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_endpoints_of_one_port() -> None:
    graph = service({"grpc": 1, "http": 2}, 2)
    assert graph.dns_addresses("grpc") == ["g-0.g.ns.svc.cluster.local:1", "g-1.g.ns.svc.cluster.local:1"]
    with pytest.raises(ValueError, match="name one of grpc, http"):
        graph.dns_addresses()
    with pytest.raises(ValueError, match="no port 'x'"):
        graph.addresses("x")


def test_in_a_pod_the_addresses_are_names(in_a_pod: None) -> None:
    graph = service({"main": 1}, 2)
    assert graph.addresses() == graph.dns_addresses()


def test_the_variables() -> None:
    env = service({"grpc": 9000, "health-check": 80}, 2).env("GRAPH")
    assert env == {
        "GRAPH_NAME": "g",
        "GRAPH_NAMESPACE": "ns",
        "GRAPH_HOST": "g.ns.svc.cluster.local",
        "GRAPH_STACK": "g",
        "GRAPH_REPLICAS": "2",
        "GRAPH_PORTS": "grpc=9000,health-check=80",
        "GRAPH_ADDRESSES_GRPC": "g-0.g.ns.svc.cluster.local:9000,g-1.g.ns.svc.cluster.local:9000",
        "GRAPH_ADDRESSES_HEALTH_CHECK": "g-0.g.ns.svc.cluster.local:80,g-1.g.ns.svc.cluster.local:80",
    }
    assert service({"grpc": 1}, 1).env()["DATA_SERVICE_ADDRESSES"] == "g-0.g.ns.svc.cluster.local:1"
    with pytest.raises(ValueError, match="prefix"):
        service({"grpc": 1}, 1).env("my-graph")


names = st.from_regex(r"[a-z]([a-z0-9]|-[a-z0-9]){0,6}", fullmatch=True)


@given(st.dictionaries(names, st.integers(1, 65535), min_size=1, max_size=4), st.integers(0, 5), st.booleans())
def test_what_reads_the_variables_gets_the_same_service(ports: dict[str, int], replicas: int, stacked: bool) -> None:
    graph = service(ports, replicas, stack="g" if stacked else "")
    assert DataService.from_env("A", graph.env("A")) == graph


@pytest.mark.parametrize("change", [{"DATA_SERVICE_PORTS": "main"}, {"DATA_SERVICE_ADDRESSES_B": "x:1"}])
def test_variables_that_are_not_ours_are_refused(change: dict[str, str]) -> None:
    environ = service({"a": 1, "b": 2}, 2).env() | change
    with pytest.raises(PermanentError, match="not what"):
        DataService.from_env(environ=environ)


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(PermanentError, match="DATA_SERVICE_NAME is not set"):
        DataService.from_env(environ={})


def test_it_travels_through_flyte_unchanged() -> None:
    context, graph = FlyteContext.current_context(), service({"a": 1, "b": 2}, 3)
    literal = TypeEngine.to_literal(context, graph, DataService, TypeEngine.to_literal_type(DataService))
    there = Literal.from_flyte_idl(literal.to_flyte_idl())
    assert TypeEngine.to_python_value(context, there, DataService) == graph


def test_a_container_task_takes_a_part_of_it() -> None:
    config = DataServiceConfig(image="image", ports=[Port(name="grpc", port=1)])
    store = DataServiceTask("takes_a_part.store", config)
    reader = ContainerTask(
        "takes_a_part.reader", "image", ["read", "--graph", "{{.inputs.graph}}"], inputs=kwtypes(graph=str)
    )

    @workflow
    def flow() -> None:
        reader(graph=store().targets["grpc"])

    (binding,) = flow.nodes[1].bindings
    assert (binding.binding.promise.var, binding.binding.promise.attr_path) == ("service", ["targets", "grpc"])


def test_waiting_ends_when_each_replica_answers(in_a_pod: None, listening: int) -> None:
    endpoints = [Endpoint(replica, "127.0.0.1", listening, "main") for replica in range(3)]
    graph = DataService("g", "ns", "g.ns", "g", {"main": listening}, endpoints)
    assert graph.wait_until_reachable(30) is graph


def test_waiting_in_vain_names_one_and_why(in_a_pod: None, listening: int) -> None:
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))  # nobody else gets it, and nobody listens
    port = closed.getsockname()[1]
    endpoints = [Endpoint(0, "127.0.0.1", listening, "main"), Endpoint(1, "127.0.0.1", port, "main")]
    graph = DataService("g", "ns", "g.ns", "g", {"main": 1}, endpoints)
    with pytest.raises(
        TransientError, match=rf"1 of 2 endpoints of g .* such as 127.0.0.1:{port}: Connection refused"
    ) as caught:
        graph.wait_until_reachable(0.01)
    closed.close()
    assert "provisioner status g" in caught.value.hint


def test_waiting_for_one_port_leaves_the_others_alone(in_a_pod: None, listening: int) -> None:
    endpoints = [Endpoint(0, "127.0.0.1", listening, "main"), Endpoint(0, "host.invalid", 1, "udp")]
    DataService("g", "ns", "g.ns", "g", {"main": 1, "udp": 1}, endpoints).wait_until_reachable(30, port="main")


def test_outside_of_the_cluster_the_slices_tell_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IN_A_POD, raising=False)
    monkeypatch.setattr("provisioner.cluster.transport.Transport", lambda settings: None)
    found = {("g-0", "main"): "10.0.0.5:1", ("g-1", "main"): "10.0.0.6:1"}
    monkeypatch.setattr("provisioner.cluster.slices.of_service", lambda *where: found)
    assert service({"main": 1}, 2).addresses() == ["10.0.0.5:1", "10.0.0.6:1"]
    with pytest.raises(TransientError, match=r"replica 2 of g has no address now: .* pod g-2") as caught:
        service({"main": 1}, 3).addresses()
    assert "route" in caught.value.hint
    assert not reach.in_cluster()


def test_slices_are_read_by_pod_and_port() -> None:
    def piece(kind: str, address: str, pod: str | None, **more: object) -> dict[str, object]:
        target = {"targetRef": {"kind": "Pod", "name": pod}} if pod else {}
        ports = [{"name": "main", "port": 9000, "protocol": "TCP"}, {"name": "http", "port": 80}]
        return {"addressType": kind, "endpoints": [{"addresses": [address], **target, **more}], "ports": ports}

    slices = [
        piece("IPv4", "10.0.0.1", "g-0"),
        piece("IPv6", "fd00::1", "g-0"),
        piece("IPv6", "fd00::2", "g-1"),
        piece("IPv4", "10.0.0.9", None),
        {"addressType": "IPv4", "endpoints": None, "ports": None},
    ]
    assert pod_addresses(slices) == {
        ("g-0", "main"): "10.0.0.1:9000",
        ("g-0", "http"): "10.0.0.1:80",
        ("g-1", "main"): "[fd00::2]:9000",
        ("g-1", "http"): "[fd00::2]:80",
    }
