"""What the README tells people to write can be written."""

import importlib
import re
from collections import OrderedDict
from pathlib import Path

import pytest
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.core.workflow import WorkflowBase
from flytekit.tools.translator import get_serializable

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_workflow_can_be_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = BLOCKS
    (tmp_path / "readme_workflow.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("readme_workflow")
    settings = SerializationSettings(ImageConfig.auto(img_name="localhost/x:1"), project="p", domain="d", version="v")
    found = get_serializable(OrderedDict(), settings, module.training).template
    assert [node.id for node in found.nodes] == ["n0", "n1"]
    assert [binding.var for binding in found.nodes[1].inputs] == ["graph"]


PREAMBLE = """
import os
from datetime import timedelta
from flytekit import ContainerTask, kwtypes, task, workflow
from flytekit.types.directory import FlyteDirectory
from provisioner.flyte import DataService, DataServiceConfig, DataServiceTask, Endpoint, Port
graph = DataService("g", "ns", "g.ns", "g", {"graph": 1}, [Endpoint(0, "g-0.g.ns", 1, "graph")])
fit = len
@task
def train(graph: DataService) -> float:
    return 1.0
@task
def report(accuracy: float) -> float:
    return accuracy
graph_store = DataServiceTask("before", DataServiceConfig(image="i", ports=[Port(name="graph", port=1)]))
"""
WORKFLOWS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/workflows.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(WORKFLOWS)))
def test_what_authors_are_shown_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    name = f"shown_workflow_{number}"
    (tmp_path / f"{name}.py").write_text(PREAMBLE + WORKFLOWS[number])
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    settings = SerializationSettings(ImageConfig.auto(img_name="localhost/x:1"), project="p", domain="d", version="v")
    for value in vars(module).values():
        if isinstance(value, WorkflowBase):
            get_serializable(OrderedDict(), settings, value)


def test_every_target_and_document_it_names_exists() -> None:
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"make (\w+)", text))
    assert targets <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [path for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", text) if not (ROOT / path).exists()]
    assert missing == []
