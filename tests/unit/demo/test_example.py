"""The example as it is registered, and the demonstration's own values."""

from __future__ import annotations

import importlib
import signal
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable
from google.protobuf import json_format

from provisioner.demo import example
from provisioner.demo.objects import TFJOBS
from provisioner.demo.report import Recorder, StepReport
from provisioner.demo.training import LABEL, Job, ended_as
from provisioner.errors import UsageError
from provisioner.flyte import DataService, Endpoint
from provisioner.spec import parse_config


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("GNN_IMAGE", "")
    for name in [name for name in sys.modules if name.partition(".")[0] == "gnn"]:
        monkeypatch.delitem(sys.modules, name)
    return example.find()


def test_the_workflow_s_own_task_is_what_is_demonstrated(examples: Path) -> None:
    template = example.serialized_task(examples, "registry.example/gnn:7")
    assert template.id.name == "gnn.graph_store"
    assert list(template.interface.outputs.variables) == ["service"]
    spec = parse_config(json_format.MessageToDict(template.custom)).spec
    assert spec is not None
    assert (spec.image, spec.replicas, spec.env["GRAPH_SHARDS"]) == ("registry.example/gnn:7", 3, "3")
    larger = parse_config(json_format.MessageToDict(example.with_replicas(template, 6).custom)).spec
    assert larger == spec.model_copy(update={"replicas": 6})
    assert template.custom["spec"]["replicas"] == 3


def test_the_same_training_is_a_tfjob_of_two_workers(examples: Path) -> None:
    example.serialized_task(examples, "registry.example/gnn:7")
    workflow = importlib.import_module("gnn.workflow_tfjob")
    settings = SerializationSettings(ImageConfig(), project="p", domain="d", version="v")
    template = get_serializable(OrderedDict(), settings, workflow.train_model).template
    assert template.type == "tensorflow"
    assert template.custom["workerReplicas"]["replicas"] == 2
    assert template.container.image == "registry.example/gnn:7"
    names = [node.flyte_entity.name.removeprefix("gnn.") for node in workflow.train_on_graph.nodes]
    assert names[:3] == ["graph_store", "workflow_tfjob.train_model", "graph_store.end"]
    assert workflow.train_on_graph.failure_node is not None


def test_ctrl_c_is_an_exception_again_after_flytekit_took_it(examples: Path) -> None:
    example.serialized_task(examples, "image")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_folder_without_the_example_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no gnn/workflow") as caught:
        example.find(tmp_path)
    assert "--examples" in caught.value.hint


STORE = DataService("g", "ns", "g.ns", "g", {"graph": 1}, [Endpoint(0, "a", 1, "graph"), Endpoint(1, "b", 1, "graph")])


def test_a_tfjob_has_the_same_container_without_what_the_operator_tells() -> None:
    job = Job("train-x", "image", STORE, 20, operator=True)
    ((resource, manifest),) = job.objects("ns")
    template = manifest["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    (container,) = template["spec"]["containers"]
    assert (resource, container["name"]) == (TFJOBS, "tensorflow")
    assert container["command"] == ["python", "-m", "gnn.train", "--steps", "20"]
    assert {"name": "GRAPH_ADDRESSES", "value": "a:1,b:1"} in container["env"]
    assert template["metadata"]["labels"] == {LABEL: "train-x"}


@pytest.mark.parametrize(
    ("conditions", "ended"),
    [
        (None, ""),
        ([{"type": "Running", "status": "True"}], ""),
        ([{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}], "Succeeded"),
        ([{"type": "Failed", "status": "True"}], "Failed"),
        ([{"type": "Failed", "status": "False"}], ""),
    ],
)
def test_a_training_job_tells_how_it_ended(conditions, ended: str) -> None:
    assert ended_as({"status": {"conditions": conditions}}) == ended
    assert ended_as({}) == ""


def test_the_workers_find_each_other_by_the_job_s_own_service() -> None:
    job = Job("train-x", "image", STORE, 20)
    service, manifest = job.service(), job.job("ns")
    pod = manifest["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]
    command = pod["spec"]["containers"][0]["command"]
    assert "train-x-0.train-x.ns.svc.cluster.local:29500" in command
    assert {"name": "GRAPH_ADDRESSES", "value": "a:1,b:1"} in pod["spec"]["containers"][0]["env"]
    assert job.selector == f"{LABEL}=train-x"


class Shown:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, step: str) -> None:
        self.lines.append(f"begin {step}")

    def update(self, line: str) -> None:
        self.lines.append(f"update {line}")

    def say(self, line: str) -> None:
        self.lines.append(f"say {line}")

    def done(self, step: StepReport) -> None:
        self.lines.append(f"done {step.name}: {step.result}")


def test_a_step_that_fails_is_not_reported_as_done() -> None:
    shown = Shown()
    record = Recorder(shown)
    with record.step("first") as step:
        step.result = "well"
    with pytest.raises(RuntimeError), record.step("second"):
        raise RuntimeError
    assert shown.lines == ["begin first", "done first: well", "begin second"]
    assert [item.name for item in record.steps] == ["first"]
