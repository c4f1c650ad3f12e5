"""What a workflow's author writes, and what arrives of it at the connector."""

from __future__ import annotations

import dataclasses

import pytest
from flytekit import Resources, kwtypes, task, workflow

from provisioner.errors import SpecError
from provisioner.flyte import DataService, DataServiceConfig, DataServiceTask, community
from provisioner.flyte.task import TASK_TYPE
from provisioner.spec import DataServiceSpec, EnvFrom, EnvSecret, Port, Probe, Toleration, parse_config


def test_every_field_of_a_specification_can_be_set_from_a_task() -> None:
    fields = {field.name for field in dataclasses.fields(DataServiceConfig)}
    assert fields - set(DataServiceSpec.model_fields) == {"name", "existing_release_name", "shared", "cluster"}
    assert set(DataServiceSpec.model_fields) <= fields


def test_the_configuration_arrives_as_the_same_specification(serialized) -> None:
    config = DataServiceConfig(
        name="graph",
        image="registry.example/store:1",
        command=["python", "-m", "store"],
        env={"SHARDS": "3", "TOKEN": EnvFrom(secret_key_ref={"name": "tokens", "key": "store"})},
        ports=[Port(name="main", port=9000)],
        replicas=3,
        readiness_probe=Probe(http_get={"port": "main", "path": "/ready"}, period_seconds=2),
        tolerations=[Toleration(key="gpu", operator="Exists")],
        start_deadline="10m",
        termination_grace_period_seconds=5,
    )
    template = serialized(DataServiceTask(name="t", task_config=config))
    assert template.type == TASK_TYPE
    read = parse_config(template.custom)
    assert read.name == "graph"
    assert read.spec == DataServiceSpec(
        image="registry.example/store:1",
        command=("python", "-m", "store"),
        env={"SHARDS": "3", "TOKEN": EnvFrom(secret_key_ref={"name": "tokens", "key": "store"})},
        ports=(Port(name="main", port=9000),),
        replicas=3,
        readiness_probe=Probe(http_get={"port": "main", "path": "/ready"}, period_seconds=2),
        tolerations=(Toleration(key="gpu", operator="Exists"),),
        start_deadline=600,
        termination_grace_period_seconds=5,
    )


def test_a_wrong_configuration_is_refused_when_the_workflow_is_loaded() -> None:
    with pytest.raises(SpecError) as caught:
        DataServiceTask(name="t", task_config=DataServiceConfig(image="Not An Image", replicas=-1))
    assert {problem.path for problem in caught.value.problems} == {"spec.image", "spec.ports", "spec.replicas"}
    assert caught.value.source == "task_config of t"


def test_a_secret_does_not_go_into_a_task_template() -> None:
    config = DataServiceConfig(
        image="image", ports=[Port(name="main", port=1)], env={"TOKEN": EnvSecret(secret="hunter2")}
    )
    with pytest.raises(SpecError, match=r"env\.TOKEN: a reference to a Secret") as caught:
        DataServiceTask(name="t", task_config=config)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("config", [None, DataServiceConfig()])
def test_a_task_that_asks_for_nothing_is_refused(config: DataServiceConfig | None) -> None:
    with pytest.raises(SpecError, match="a service to create"):
        DataServiceTask(name="t", task_config=config)


def test_the_community_plugin_s_names_give_its_own_document(serialized) -> None:
    config = DataServiceConfig(
        Name="test",
        Replicas=8,
        Image="image",
        Cluster="grid2",
        Requests=Resources(cpu="1", mem="2Gi", gpu="4"),
        Limits=Resources(cpu="1", mem="2Gi", gpu="4"),
        Port=1234,
    )
    assert isinstance(config, community.DataServiceConfig)
    resources = {"cpu": "1", "mem": "2Gi", "gpu": "4", "ephemeral_storage": None}
    template = serialized(community.DataServiceTask(name="t", inputs=kwtypes(ds=str), task_config=config))
    assert template.custom == {
        "Name": "test",
        "Replicas": 8.0,
        "Image": "image",
        "Command": None,
        "Cluster": "grid2",
        "ExistingReleaseName": None,
        "Requests": resources,
        "Limits": resources,
        "Port": 1234.0,
    }
    spec = parse_config(template.custom).spec
    assert spec is not None
    assert spec.replicas == 8
    assert spec.ports == (Port(name="main", port=1234),)
    assert spec.resources.limits == {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "4"}


def test_the_outputs_are_a_data_service_or_the_plugin_s_name(task: DataServiceTask) -> None:
    assert task.python_interface.outputs == {"service": DataService}
    config = community.DataServiceConfig(Image="image")
    assert community.DataServiceTask(name="t", task_config=config).python_interface.outputs == {"name": str}


def test_a_workflow_passes_the_service_and_its_parts_on() -> None:
    store = DataServiceTask(
        name="passes_on.store",
        task_config=DataServiceConfig(image="image", ports=[Port(name="main", port=1)]),
    )

    @task
    def train(graph: DataService, host: str) -> str:
        return f"{host} {graph.addresses()[0]}"

    @workflow
    def flow() -> str:
        graph = store()
        return train(graph=graph, host=graph.dns_name)

    nodes = {node.id: node for node in flow.nodes}
    bindings = {binding.var: binding.binding.promise for binding in nodes["n1"].bindings}
    assert bindings["graph"].var == "service"
    assert bindings["host"].attr_path == ["dns_name"]
