"""Flyte 2: its own templates, metadata and values; and its DeleteTask, which also comes after success."""

from __future__ import annotations

import asyncio
import datetime
import threading
from enum import Enum
from pathlib import Path
from typing import Any

import both_flytes  # noqa: F401 - before the SDK's connectors
import flyte
import pytest
from flyte._internal.runtime.task_serde import get_proto_task
from flyte.connectors import ConnectorRegistry
from flyte.connectors._connector import get_resource_proto
from flyte.models import SerializationContext
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl2.connector import connector_pb2
from flyteidl2.core import execution_pb2, identifier_pb2, tasks_pb2
from hypothesis import given
from hypothesis import strategies as st

from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.errors import SpecError
from provisioner.flyte import DataServiceConfig, Port, inputs, v2
from provisioner.flyte.meta import DataServiceMeta, Rejected, Wanted

CONFIG = {"image": "image", "ports": [Port(name="main", port=9000)]}


def template(declared: Any = None, **fields: Any) -> tasks_pb2.TaskTemplate:
    """As the SDK makes it when it deploys the task."""
    task = v2.DataServiceTask("store", DataServiceConfig(**{**CONFIG, **fields}), inputs=declared)
    flyte.TaskEnvironment.from_task("stores", task)
    context = SerializationContext(project="p", domain="d", org="o", version="v1", root_dir=Path())
    made = get_proto_task(task, context)
    return tasks_pb2.TaskTemplate.FromString(made.SerializeToString())


def metadata(run: str = "run1", action: str = "a1") -> connector_pb2.TaskExecutionMetadata:
    execution = identifier_pb2.WorkflowExecutionIdentifier(project="p", domain="d", name=run)
    return connector_pb2.TaskExecutionMetadata(
        task_execution_id=identifier_pb2.TaskExecutionIdentifier(
            task_id=identifier_pb2.Identifier(project="p", domain="d", name="store", version="v1"),
            node_execution_id=identifier_pb2.NodeExecutionIdentifier(node_id=action, execution_id=execution),
        ),
        namespace="p-d",
    )


@pytest.fixture
def flyte2(runtime) -> v2.DataServiceConnector:
    return v2.DataServiceConnector(runtime, clock=lambda: 1000.0)


def wanted(meta: DataServiceMeta) -> ServiceRequest:
    assert isinstance(meta.content, Wanted)
    return meta.content.request


async def test_an_action_gets_its_service(flyte2, control) -> None:
    meta = await flyte2.create(template(replicas=2), task_execution_metadata=metadata())
    request = wanted(meta)
    assert (request.identity.project, request.identity.domain, request.identity.namespace) == ("p", "d", "p-d")
    assert request.identity.owner == "flyte2.run1"
    assert wanted(await flyte2.create(template(replicas=2), task_execution_metadata=metadata())) == request
    other = await flyte2.create(template(replicas=2), task_execution_metadata=metadata(action="a2"))
    assert wanted(other).stack != request.stack

    meta = DataServiceMeta.decode(meta.encode())
    assert (await flyte2.get(meta)).phase == TaskExecution.QUEUED
    control.answer = {"phase": Phase.READY}
    found = await flyte2.get(meta)
    assert found.phase == execution_pb2.TaskExecution.SUCCEEDED
    assert found.outputs["service"].dns_addresses()[1].startswith(f"{request.stack}-1.{request.stack}.p-d.svc")
    assert len((await get_resource_proto(found)).outputs.literals) == 1


def test_the_phases_have_the_same_numbers_in_both_generations() -> None:
    assert dict(TaskExecution.Phase.items()).items() <= dict(execution_pb2.TaskExecution.Phase.items()).items()


class Kind(Enum):
    A = "a"


async def test_python_values_fill_the_specification(flyte2) -> None:
    declared = {"n": int, "share": float, "graph": str, "kind": Kind, "wait": datetime.timedelta, "words": list[str]}
    made = template(
        declared,
        replicas="{{.inputs.n}}",
        command="{{.inputs.words}}",
        args=["{{.inputs.kind}}", "{{.inputs.share}}"],
        start_deadline="{{.inputs.wait}}",
    )
    assert list(made.interface.inputs.variables)
    values = {
        "n": 4,
        "share": 0.5,
        "graph": object(),  # orders the task and fills nothing
        "kind": Kind.A,
        "wait": datetime.timedelta(minutes=1),
        "words": ["a", "b"],
    }
    spec = wanted(await flyte2.create(made, inputs=values, task_execution_metadata=metadata())).spec
    assert (spec.replicas, spec.command, spec.args, spec.start_deadline) == (4, ("a", "b"), ("a", "0.5"), 60)


async def test_a_value_that_no_field_takes_fails_for_good_and_is_named(flyte2) -> None:
    made = template({"n": int}, replicas="{{.inputs.n}}")
    meta = await flyte2.create(made, inputs={"n": object()}, task_execution_metadata=metadata())
    assert isinstance(meta.content, Rejected)
    assert "spec.replicas: input n is of a kind that no field takes" in meta.content.message


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(plain)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert inputs.value_of(v2.literal(value)) == value


def test_a_task_is_checked_when_it_is_written() -> None:
    with pytest.raises(SpecError, match=r"spec\.replicas"):
        v2.DataServiceTask("store", DataServiceConfig(**CONFIG, replicas=-1))
    assert v2.DataServiceTask("store", DataServiceConfig(**CONFIG)).task_type == "dataservicetask"


def test_the_sdk_finds_the_connector() -> None:
    assert isinstance(ConnectorRegistry.get_connector("dataservicetask"), v2.DataServiceConnector)


@pytest.mark.parametrize(
    ("phase", "deadline", "expected"),
    [
        (TaskExecution.QUEUED, 1600.0, False),
        (TaskExecution.INITIALIZING, 1600.0, False),
        (TaskExecution.RUNNING, 1600.0, False),
        (TaskExecution.RUNNING, 999.0, True),
        (TaskExecution.RUNNING, None, False),
        (TaskExecution.SUCCEEDED, 1600.0, True),
        (TaskExecution.SUCCEEDED, None, True),
        (TaskExecution.FAILED, 999.0, False),
    ],
)
def test_what_has_come_up_had_succeeded(phase: int, deadline: float | None, expected: bool) -> None:
    assert v2.had_succeeded(phase, deadline, now=1000.0) is expected


@pytest.mark.parametrize(("phase", "removed"), [(Phase.STARTING, True), (Phase.READY, False)])
async def test_deletion_after_success_keeps_the_service(flyte2, control, phase: Phase, removed: bool) -> None:
    meta = await flyte2.create(template(), task_execution_metadata=metadata())
    control.answer = {"phase": phase}
    await flyte2.delete(meta)
    assert (("leave", wanted(meta).stack) in control.calls) is removed


async def test_a_slow_call_does_not_hold_up_the_others(flyte2, control, monkeypatch) -> None:
    slow, quick = [
        await flyte2.create(template(), task_execution_metadata=metadata(action=action)) for action in ("a1", "a2")
    ]
    go_on, observe = threading.Event(), control.observe

    def observed(request: ServiceRequest) -> Status:
        if request == wanted(slow):
            assert go_on.wait(60)
        return observe(request)

    monkeypatch.setattr(control, "observe", observed)
    waiting = asyncio.create_task(flyte2.get(slow))
    answers = await asyncio.gather(*(flyte2.get(quick) for _ in range(40)))
    assert {found.phase for found in answers} == {TaskExecution.QUEUED}
    assert not waiting.done()
    go_on.set()
    assert (await waiting).phase == TaskExecution.QUEUED


async def test_a_run_ends_its_service_by_name(runtime, control) -> None:
    cleanup = v2.CleanupConnector(runtime)
    task = v2.CleanupTask("end")
    flyte.TaskEnvironment.from_task("ends", task)
    context = SerializationContext(project="p", domain="d", org="o", version="v1", root_dir=Path())
    made = tasks_pb2.TaskTemplate.FromString(get_proto_task(task, context).SerializeToString())
    meta = await cleanup.create(made, inputs={"release_name": "graph"}, task_execution_metadata=metadata())
    control.answer = {"phase": Phase.GONE, "message": "nothing of it is left"}
    found = await cleanup.get(DataServiceMeta.decode(meta.encode()))
    assert found.phase == TaskExecution.SUCCEEDED
    assert control.calls == [("end", "p-d/graph p:d:flyte2.run1:a1")]
    await cleanup.delete(meta)
