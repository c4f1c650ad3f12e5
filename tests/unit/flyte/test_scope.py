"""Services that end with a block or with the workflow: as it is compiled, and as it runs locally."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pytest
from flytekit import task
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.extend.backend.base_connector import ConnectorRegistry
from flytekit.tools.translator import get_serializable

from provisioner.control.status import Phase
from provisioner.errors import UsageError
from provisioner.flyte import (
    CleanupConnector,
    DataService,
    DataServiceConfig,
    DataServiceConnector,
    DataServiceTask,
    Port,
    data_service,
    local,
    scoped_workflow,
)

store = DataServiceTask("scope.store", DataServiceConfig(image="image", ports=[Port(name="main", port=1)]))


@task
def read(graph: DataService, fail: bool = False) -> str:
    if fail:
        raise ValueError("as it was asked to")
    return graph.name


@task
def after(name: str) -> str:
    return name


@scoped_workflow
def with_a_block(fail: bool = False) -> str:
    with data_service(store) as graph:
        first = read(graph=graph, fail=fail)
        read(graph=graph, fail=fail)
    return after(name=first)


@scoped_workflow
def without_a_block() -> str:
    return read(graph=store())


def compiled(workflow):
    settings = SerializationSettings(ImageConfig.auto(img_name="localhost/x:1"), project="p", domain="d", version="v")
    return get_serializable(OrderedDict(), settings, workflow).template


def upstream(template) -> dict[str, tuple[str, set[str]]]:
    return {
        node.id: (node.task_node.reference_id.name.rpartition(".")[2], set(node.upstream_node_ids))
        for node in template.nodes
    }


def test_a_block_ends_its_service_after_its_last_task() -> None:
    nodes = upstream(compiled(with_a_block))
    assert nodes["n3"] == ("end", {"n0", "n1", "n2"})
    assert nodes["n4"] == ("after", {"n1"})
    assert nodes["n5"] == ("end_services", {"n0", "n1", "n2", "n3", "n4"})


def test_a_workflow_ends_its_services_when_it_fails() -> None:
    template = compiled(with_a_block)
    failure = template.failure_node
    assert failure.task_node.reference_id.name.endswith("with_a_block.end_services_on_failure")
    assert [item.var for item in failure.inputs] == ["fail"]


def test_a_workflow_without_a_block_ends_them_last() -> None:
    assert upstream(compiled(without_a_block))["n2"] == ("end_services", {"n0", "n1"})


def test_a_failure_node_of_one_s_own_is_not_lost() -> None:
    with pytest.raises(UsageError, match="has a failure node already"):
        scoped_workflow(on_failure=after)


@pytest.fixture
def here(runtime, control, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The connectors of this process, over a control that is a value."""

    class Child:
        def own(self, request) -> None:
            """Nothing is left here."""

        def forget(self, stack: str) -> None:
            """Nothing is left here."""

    monkeypatch.setattr(local.Reaper, "start", lambda before_end: Child())
    before = dict(ConnectorRegistry._REGISTRY)
    ConnectorRegistry.register(DataServiceConnector(runtime), override=True)
    ConnectorRegistry.register(CleanupConnector(runtime), override=True)
    control.answer = {"phase": Phase.READY}
    end, every = control.end, control.end_all

    def ended(*arguments):
        control.answer = {"phase": Phase.GONE}
        return end(*arguments)

    def all_ended(*arguments):
        control.answer = {"phase": Phase.GONE}
        return every(*arguments)

    monkeypatch.setattr(control, "end", ended)
    monkeypatch.setattr(control, "end_all", all_ended)
    yield
    ConnectorRegistry._REGISTRY.clear()
    ConnectorRegistry._REGISTRY.update(before)


def ends(control) -> list[str]:
    return [call for call, _ in control.calls if call.startswith("end")]


def test_a_local_run_ends_them_too(here, control) -> None:
    name = with_a_block()
    assert name in control.requests
    assert ends(control) == ["end", "end_all"]


def test_a_local_run_that_fails_ends_them(here, control) -> None:
    with pytest.raises(Exception, match="as it was asked to"):
        with_a_block(fail=True)
    assert ends(control) == ["end", "end_all"]
