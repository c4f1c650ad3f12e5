"""What the README tells people to write can be written."""

import importlib
import re
from collections import OrderedDict
from pathlib import Path

import pytest
from flytekit.configuration import ImageConfig, SerializationSettings
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


def test_every_target_and_document_it_names_exists() -> None:
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"make (\w+)", text))
    assert targets <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [path for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", text) if not (ROOT / path).exists()]
    assert missing == []
