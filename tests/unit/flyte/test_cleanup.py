"""The cleanup: what it asks for, what Flyte is told, and what it refuses. Control is a value here."""

from __future__ import annotations

import asyncio

import pytest
from flyteidl.core.execution_pb2 import ExecutionError, TaskExecution
from flytekit import workflow
from flytekit.core.type_engine import TypeEngine
from flytekit.exceptions.user import FlyteUserException
from flytekit.extend.backend.base_connector import ConnectorRegistry
from flytekit.models.literals import Binary, Literal, LiteralMap, Scalar
from flytekit.models.types import LiteralType, SimpleType

from provisioner.control.status import Phase
from provisioner.errors import SpecError, TransientError
from provisioner.flyte import CleanupSensor, CleanupTask, EndServicesTask, attach, community, release
from provisioner.flyte.cleaning import CleanupConnector
from provisioner.flyte.meta import Cleanup, DataServiceMeta, Rejected
from provisioner.identity import User
from provisioner.janitor.facts import Alive, Ended, Unknown


class FakeJobs:
    """The cluster's word about jobs."""

    def __init__(self) -> None:
        self.found: object = None
        self.asked: list[str] = []

    def liveness(self, namespace: str, job: str) -> object:
        self.asked.append(f"{namespace}/{job}")
        return self.found


@pytest.fixture
def waited() -> FakeJobs:
    return FakeJobs()


@pytest.fixture
def cleaner(runtime, waited) -> CleanupConnector:
    return CleanupConnector(runtime, waited)


def inputs(**values: object) -> LiteralMap:
    types = {str: SimpleType.STRING, bool: SimpleType.BOOLEAN}
    return LiteralMap(
        {
            name: TypeEngine.to_literal(None, value, type(value), LiteralType(simple=types[type(value)]))
            for name, value in values.items()
        }
    )


def asked(cleaner, serialized, execution, task, **values: object) -> DataServiceMeta:
    template = serialized(task)
    meta = cleaner.create(template, inputs=inputs(**values), task_execution_metadata=execution(node="n3"))
    return DataServiceMeta.decode(meta.encode())


def test_it_ends_the_use_of_this_execution(cleaner, control, serialized, execution) -> None:
    meta = asked(cleaner, serialized, execution, CleanupTask(name="end"), release_name="graph-x")
    assert meta.content == Cleanup("p-d", "graph-x", User("p", "d", "exec1", "n3"))
    control.answer = {"phase": Phase.REMOVING, "message": "its pods are still there"}
    assert cleaner.get(meta).phase == TaskExecution.RUNNING
    control.answer = {"phase": Phase.GONE, "message": "nothing of it is left"}
    assert cleaner.get(meta).phase == TaskExecution.SUCCEEDED
    assert set(control.calls) == {("end", "p-d/graph-x p:d:exec1:n3")}


def test_one_that_others_use_is_given_back_and_that_is_success(cleaner, control, serialized, execution) -> None:
    meta = asked(cleaner, serialized, execution, release(), release_name="graph-x")
    control.answer = {"phase": Phase.IN_USE, "message": "it stays, since p:d:other:n0 still uses it"}
    resource = cleaner.get(meta)
    assert resource.phase == TaskExecution.SUCCEEDED
    assert "p:d:other:n0" in resource.message


def test_what_goes_wrong_is_raised_and_what_passes_is_waited_for(cleaner, control, serialized, execution) -> None:
    meta = asked(cleaner, serialized, execution, CleanupTask(name="end"), release_name="graph-x")
    control.error = TransientError("the API server is away")
    assert cleaner.get(meta).phase == TaskExecution.RUNNING
    control.error = None
    control.answer = {"phase": Phase.FAILED, "reason": "NotYours", "message": "it does not belong to p"}
    error = asyncio.run(cleaner.get(meta).to_flyte_idl()).agent_error
    assert (error.code, error.origin) == ("NotYours", ExecutionError.USER)


@pytest.mark.parametrize(
    ("found", "begins"),
    [(None, False), (Alive("runs"), False), (Ended("over"), True), (Ended("gone", failed=True), True)],
)
def test_a_job_that_was_named_has_to_end_first(cleaner, control, waited, serialized, execution, found, begins) -> None:
    task = CleanupTask(name="end", wait_for="TFJob")
    meta = asked(cleaner, serialized, execution, task, release_name="graph-x", job_name="train-1")
    waited.found = found
    control.answer = {"phase": Phase.GONE}
    resource = cleaner.get(meta)
    assert waited.asked == ["p-d/TFJob/train-1"]
    assert (resource.phase == TaskExecution.SUCCEEDED) is begins
    assert bool(control.calls) is begins
    if not begins:
        assert resource.phase == TaskExecution.RUNNING
        assert "waits for TFJob/train-1" in resource.message


def test_a_job_that_cannot_be_asked_about_is_waited_for_with_its_reason(
    cleaner, control, waited, serialized, execution
) -> None:
    task = CleanupTask(name="end", wait_for="MPIJob")
    meta = asked(cleaner, serialized, execution, task, release_name="graph-x", job_name="train-1")
    waited.found = Unknown("this cluster knows no mpijobs")
    resource = cleaner.get(meta)
    assert resource.phase == TaskExecution.RUNNING
    assert "this cluster knows no mpijobs" in resource.message
    assert control.calls == []


def test_a_kind_of_job_that_there_is_not_is_said_when_the_workflow_is_loaded() -> None:
    with pytest.raises(SpecError, match="one of Job, PyTorchJob, TFJob, MPIJob"):
        CleanupTask(name="end", wait_for="SparkJob")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"release_name": "No Name"}, "release_name"),
        ({"release_name": ""}, "release_name"),
        ({"release_name": "graph", "job_name": "../x"}, "job_name"),
        ({"release_name": "graph"}, "job_name"),
    ],
)
def test_names_that_cannot_be_are_refused(cleaner, serialized, execution, values, named) -> None:
    meta = asked(cleaner, serialized, execution, CleanupTask(name="end", wait_for="Job"), **values)
    assert isinstance(meta.content, Rejected)
    assert named in meta.content.message
    assert cleaner.get(meta).phase == TaskExecution.FAILED


def sensed(cleaner, serialized, execution, namespace: str | None, wanted: bool = True) -> DataServiceMeta:
    sensor = CleanupSensor(name="sensor", namespace=namespace)
    values = {"release_name": "graph-x", "cleanup_data_service": wanted, "cluster": "any"}
    return asked(cleaner, serialized, execution, sensor, **values)


def test_the_plugin_s_sensor_keeps_its_namespace_and_no_other_is_reached(cleaner, serialized, execution) -> None:
    assert community.CleanupSensor is CleanupSensor
    assert sensed(cleaner, serialized, execution, None).content.namespace == "p-d"
    assert sensed(cleaner, serialized, execution, "p-d").content.namespace == "p-d"
    other = sensed(cleaner, serialized, execution, "flyte").content
    assert isinstance(other, Rejected)
    assert "the namespace of the execution, p-d" in other.message


def test_the_sensor_that_is_not_to_clean_up_does_nothing(cleaner, control, serialized, execution) -> None:
    meta = sensed(cleaner, serialized, execution, None, wanted=False)
    assert cleaner.get(meta).phase == TaskExecution.SUCCEEDED
    assert control.calls == []


async def test_poke_alone_tells_whether_it_is_over(cleaner, control, monkeypatch) -> None:
    usual = ConnectorRegistry.get_connector("dataservicecleanup")
    monkeypatch.setitem(ConnectorRegistry._REGISTRY, usual.task_category, cleaner)
    sensor = CleanupSensor(name="sensor", namespace="here")
    assert await sensor.poke("graph", False, "") is True
    assert control.calls == []
    control.answer = {"phase": Phase.REMOVING}
    assert await sensor.poke("graph", True, "") is False
    control.answer = {"phase": Phase.GONE}
    assert await sensor.poke("graph", True, "") is True
    assert control.calls[-1][1].startswith("here/graph local:local:local-")
    control.answer = {"phase": Phase.FAILED, "reason": "NotYours", "message": "not yours"}
    with pytest.raises(FlyteUserException, match="not yours"):
        await sensor.poke("graph", True, "")


def test_an_abort_of_the_cleanup_and_a_foreign_meta_are_harmless(cleaner, control, serialized, execution) -> None:
    meta = asked(cleaner, serialized, execution, CleanupTask(name="end"), release_name="graph-x")
    cleaner.delete(meta)
    assert control.calls == []
    assert cleaner.get(DataServiceMeta.decode(b"something")).phase == TaskExecution.FAILED


def test_the_tasks_fit_together_in_a_workflow() -> None:
    use, end = attach("features"), release(wait_for="TFJob")

    @workflow
    def flow() -> None:
        service = use()
        end(release_name=service.name, job_name="train")

    assert [node.flyte_entity.name for node in flow.nodes] == ["attach-features", "release-data-service"]
    assert flow.nodes[1].upstream_nodes == [flow.nodes[0]]


def test_a_name_that_is_a_part_of_a_structure_is_read(cleaner, serialized, execution) -> None:
    # What propeller makes of `graph.name` in a workflow.
    part = Literal(scalar=Scalar(binary=Binary(value=b"\xa5graph", tag="msgpack")))
    template = serialized(CleanupTask(name="t"))
    meta = cleaner.create(
        template, inputs=LiteralMap({"release_name": part}), task_execution_metadata=execution(node="n3")
    )
    assert isinstance(meta.content, Cleanup)
    assert meta.content.service == "graph"


def test_the_end_of_all_services_needs_no_name(cleaner, serialized, execution, control) -> None:
    control.answer = {"phase": Phase.REMOVING, "message": "graph: going"}
    template = serialized(EndServicesTask("t", {"steps": int}))
    meta = cleaner.create(template, inputs=LiteralMap({}), task_execution_metadata=execution(node="fn0"))
    meta = DataServiceMeta.decode(meta.encode())
    assert cleaner.get(meta).phase == TaskExecution.RUNNING
    assert control.calls == [("end_all", "p-d p:d:exec1:fn0")]
    control.answer = {"phase": Phase.GONE, "message": "graph: ended"}
    assert cleaner.get(meta).phase == TaskExecution.SUCCEEDED
