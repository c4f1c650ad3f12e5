"""Whole workflows, run as propeller runs them: what a service's task gives is what the next one uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from flytekit import ContainerTask, kwtypes, workflow
from propeller import NodeFailed, Propeller

from provisioner.demo.objects import await_true
from provisioner.flyte import DataServiceConfig, DataServiceTask, Port, data_service, scoped_workflow

IMAGE = "localhost/busybox:sandbox"
PATIENCE = 120.0
# Connects to each address that it is given; nothing but busybox is in the image. A name is known to the cluster's
# DNS a moment after its pod is ready.
REACH = (
    "IFS=,; for a in $0; do until /bin/busybox nc -w 5 ${a%:*} ${a##*:} </dev/null; do /bin/busybox sleep 1; done; "
    "done; test $# = 0"
)

store = DataServiceTask(
    name="workflows.store",
    task_config=DataServiceConfig(
        name="store",
        image=IMAGE,
        command=["/bin/busybox", "nc", "-ll", "-p", "9000", "-e", "/bin/busybox", "true"],
        ports=[Port(name="main", port=9000)],
        replicas="{{.inputs.shards}}",
        termination_grace_period_seconds=1,
    ),
    inputs=kwtypes(shards=int),
)
reader = ContainerTask(
    name="workflows.reader",
    image=IMAGE,
    command=["/bin/busybox", "sh", "-c", REACH, "{{.inputs.graph}}"],
    inputs=kwtypes(graph=str),
)


@workflow
def read_all(shards: int) -> str:
    graph = store(shards=shards)
    reader(graph=graph.targets["main"])
    return graph.name


breaker = ContainerTask(
    name="workflows.breaker",
    image=IMAGE,
    command=["/bin/busybox", "false", "{{.inputs.graph}}"],
    inputs=kwtypes(graph=str),
)


@scoped_workflow
def read_in_a_block(shards: int) -> None:
    with data_service(store, shards=shards) as graph:
        reader(graph=graph.targets["main"])


@scoped_workflow
def fail_in_a_block(shards: int) -> None:
    with data_service(store, shards=shards) as graph:
        breaker(graph=graph.targets["main"])


@pytest.fixture
def propeller(server, objects, execution, tmp_path: Path) -> Propeller:
    return Propeller(server.address, objects, execution(), tmp_path)


@pytest.fixture(autouse=True)
def nothing_stays(propeller: Propeller, caller, left):
    yield
    for meta in propeller.metas.values():
        caller.delete(meta)
        await_true(lambda meta=meta: left(meta) == [], PATIENCE, "nothing of it is left")


def test_a_container_task_reaches_every_replica_by_name(propeller: Propeller, objects) -> None:
    name = propeller.run(read_all, shards=3)["o0"]
    pods = objects.pod_uids(f"data-service-provisioner/stack={name}")
    assert sorted(pods) == [f"{name}-0", f"{name}-1", f"{name}-2"]


def test_an_input_that_makes_the_service_wrong_fails_its_task_and_is_named(propeller: Propeller) -> None:
    with pytest.raises(NodeFailed, match=r"(?s)n0: .*spec\.replicas: .*its value comes from input shards"):
        propeller.run(read_all, shards=-1)
    propeller.metas.clear()  # nothing was made


def test_a_block_leaves_nothing_when_it_is_over(propeller: Propeller, left) -> None:
    propeller.run(read_in_a_block, shards=1)
    (meta,) = propeller.metas.values()
    assert left(meta) == []


def test_a_workflow_that_fails_leaves_nothing_when_its_failure_node_is_over(propeller: Propeller, left) -> None:
    with pytest.raises(NodeFailed, match=r"pod .* has failed"):
        propeller.run(fail_in_a_block, shards=1)
    (meta,) = propeller.metas.values()
    assert left(meta) == []
