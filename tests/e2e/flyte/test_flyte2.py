"""Flyte 2: its own server, started as its users start it, called with its own protobuf."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import flyte
import grpc
import pytest
from flyte._internal.runtime.task_serde import get_proto_task
from flyte.models import SerializationContext
from flyteidl2.connector.connector_pb2 import (
    CreateTaskRequest,
    DeleteTaskRequest,
    GetTaskRequest,
    Resource,
    TaskCategory,
    TaskExecutionMetadata,
)
from flyteidl2.connector.service_pb2_grpc import AsyncConnectorServiceStub
from flyteidl2.core import identifier_pb2, literals_pb2, tasks_pb2
from flyteidl2.core.execution_pb2 import TaskExecution
from flyteidl2.task import common_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from provisioner.control.reaper import remove_all
from provisioner.demo.objects import await_true
from provisioner.flyte import DataServiceConfig, Port, v2
from provisioner.flyte.meta import DataServiceMeta
from provisioner.identity import LABEL_STACK

PATIENCE = 120.0
CATEGORY = TaskCategory(name="dataservicetask")
FINAL = (TaskExecution.SUCCEEDED, TaskExecution.FAILED)


@pytest.fixture
def stub(
    environment: Callable[[], dict[str, str]], ports: list[str], tmp_path: Path
) -> Iterator[AsyncConnectorServiceStub]:
    port, metrics_port = ports
    command = [str(Path(sys.executable).with_name("c0")), "--port", port, "--prometheus_port", metrics_port]
    log = tmp_path / "c0.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | environment(), stdout=output, stderr=output)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            HealthStub(channel).Check(HealthCheckRequest(), wait_for_ready=True, timeout=PATIENCE)
            yield AsyncConnectorServiceStub(channel)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        print(log.read_text(errors="replace"))


@pytest.fixture
def create(stub: AsyncConnectorServiceStub, request: pytest.FixtureRequest) -> Callable[..., bytes]:
    """CreateTask for one action of one run, with an input that sets the number of replicas."""

    def create(replicas: int, image: str = "localhost/busybox:sandbox") -> bytes:
        config = DataServiceConfig(
            image=image,
            command=["/bin/busybox", "nc", "-ll", "-p", "9000", "-e", "/bin/busybox", "true"],
            ports=[Port(name="main", port=9000)],
            replicas="{{.inputs.n}}",
            termination_grace_period_seconds=1,
        )
        task = v2.DataServiceTask("store", config, inputs={"n": int})
        flyte.TaskEnvironment.from_task("stores", task)
        made = get_proto_task(task, SerializationContext(project="p", domain="d", version="1", root_dir=Path()))
        number = literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=literals_pb2.Primitive(integer=replicas)))
        execution = identifier_pb2.WorkflowExecutionIdentifier(project="p", domain="d", name=request.node.name)
        metadata = TaskExecutionMetadata(
            task_execution_id=identifier_pb2.TaskExecutionIdentifier(
                task_id=identifier_pb2.Identifier(project="p", domain="d", name="store", version="1"),
                node_execution_id=identifier_pb2.NodeExecutionIdentifier(node_id="a0", execution_id=execution),
            ),
            namespace="default",
        )
        call = CreateTaskRequest(
            inputs=common_pb2.Inputs(literals=[common_pb2.NamedLiteral(name="n", value=number)]),
            template=tasks_pb2.TaskTemplate.FromString(made.SerializeToString()),
            output_prefix="s3://x",
            task_execution_metadata=metadata,
        )
        return stub.CreateTask(call, timeout=PATIENCE).resource_meta

    return create


@pytest.fixture
def poll(stub: AsyncConnectorServiceStub) -> Callable[[bytes], Resource]:
    def poll(meta: bytes) -> Resource:
        return stub.GetTask(GetTaskRequest(resource_meta=meta, task_category=CATEGORY), timeout=PATIENCE).resource

    return poll


def final(poll: Callable[[bytes], Resource], meta: bytes) -> Resource:
    """The answer that ends the polls: one that comes before it says nothing, also after an earlier end."""
    answers: list[Resource] = []

    def ended() -> bool:
        answers.append(poll(meta))
        return answers[-1].phase in FINAL

    await_true(ended, PATIENCE, "the task is over")
    return answers[-1]


def test_a_service_outlives_the_deletion_of_its_action(stub, create, poll, objects, settings, left) -> None:
    meta = create(replicas=2)
    found = final(poll, meta)
    assert found.phase == TaskExecution.SUCCEEDED, found.message
    assert [output.name for output in found.outputs.literals] == ["service"]
    request = DataServiceMeta.decode(meta).content.request
    selector = f"{LABEL_STACK}={request.stack}"
    before = objects.pod_uids(selector)
    assert len(before) == 2
    stub.DeleteTask(DeleteTaskRequest(resource_meta=meta, task_category=CATEGORY), timeout=PATIENCE)
    assert final(poll, meta).phase == TaskExecution.SUCCEEDED
    assert objects.pod_uids(selector) == before
    assert remove_all([request], settings, print)
    assert left(meta) == []


def test_an_action_that_is_aborted_while_its_service_starts_leaves_nothing(stub, create, poll, left) -> None:
    meta = create(replicas=1, image="127.0.0.1:5999/missing:1")
    await_true(lambda: left(meta) != [], PATIENCE, "its creation has begun")
    stub.DeleteTask(DeleteTaskRequest(resource_meta=meta, task_category=CATEGORY), timeout=PATIENCE)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")
