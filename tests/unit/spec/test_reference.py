"""The reference and the JSON Schema say what the model does."""

import re
from pathlib import Path
from typing import Any

import pytest
from documents import broken_specs, specs
from hypothesis import HealthCheck, given, settings

from provisioner.errors import SpecError
from provisioner.spec import parse_spec
from provisioner.spec.reference import json_schema, markdown

ROOT = Path(__file__).parents[3]
SCHEMA = json_schema()
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def faults(value: Any, schema: Any, path: str = "") -> list[str]:
    """What a JSON Schema validator would say, for the keywords that occur here."""
    if "$ref" in schema:
        return faults(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
    for word in ("anyOf", "oneOf"):
        if word in schema and all(faults(value, item, path) for item in schema[word]):
            return [f"{path}: none of {word}"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) and (kind == "boolean" or value is not True) for kind in kinds):
        return [f"{path}: not {kinds}"]
    found = [f"{path}: not one of the values"] if "enum" in schema and value not in schema["enum"] else []
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: not {schema['const']}")
    if isinstance(value, str):
        found += [f"{path}: pattern"] if not re.search(schema.get("pattern", ""), value) else []
    elif isinstance(value, int | float):
        inside = schema.get("minimum", value) <= value <= schema.get("maximum", value)
        found += [] if inside else [f"{path}: out of bounds"]
    elif isinstance(value, list):
        found += [f"{path}: too short"] if len(value) < schema.get("minItems", 0) else []
        found += [fault for item in value for fault in faults(item, schema["items"], f"{path}[]")]
    elif isinstance(value, dict):
        found += _mapping(value, schema, path)
    return found


def _mapping(value: dict[str, Any], schema: Any, path: str) -> list[str]:
    found = [f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value]
    more = schema.get("additionalProperties", True)
    for name, item in value.items():
        inner = schema.get("properties", {}).get(name, more)
        if inner is False:
            found.append(f"{path}.{name}: unknown")
        elif inner is not True:
            found += faults(item, inner, f"{path}.{name}")
    return found


def document(spec: Any) -> dict[str, Any]:
    return {"apiVersion": "data-service/v1", "kind": "DataService", "metadata": {"name": "graph"}, "spec": spec}


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(specs())
def test_what_is_accepted_here_is_accepted_by_an_editor(spec: dict[str, Any]):
    parse_spec(spec)
    assert faults(document(spec), SCHEMA) == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(broken_specs())
def test_broken_specifications_are_broken(spec: dict[str, Any]):
    with pytest.raises(SpecError) as caught:
        parse_spec(spec)
    assert caught.value.problems


@pytest.mark.parametrize(
    "spec",
    [
        {"image": "A b", "ports": [{"name": "a", "port": 1}]},
        {"image": "a", "ports": [{"name": "A", "port": 1}]},
        {"image": "a", "ports": [{"name": "a", "port": 0}]},
        {"image": "a", "ports": []},
        {"image": "a", "ports": [{"name": "a", "port": 1}], "replica": 1},
        {"image": "a", "ports": [{"name": "a", "port": 1}], "replicas": 10_001},
        {"image": "a", "ports": [{"name": "a", "port": 1}], "startDeadline": "1x"},
        {"image": "a", "ports": [{"name": "a", "port": 1}], "resources": {"limits": {"cpu": "1x"}}},
        {"image": "a", "ports": [{"name": "a", "port": 1}], "podManagementPolicy": "Random"},
        {"ports": [{"name": "a", "port": 1}]},
    ],
)
def test_an_editor_sees_what_is_wrong_with_one_field(spec: dict[str, Any]):
    assert faults(document(spec), SCHEMA)


def test_the_reference_in_the_repository_is_of_this_model():
    stored = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    assert stored == markdown(), "run `make docs`"


def test_every_field_and_part_is_in_the_reference():
    text = markdown()
    for name, part in {"ServiceDocument": SCHEMA, **SCHEMA["$defs"]}.items():
        assert f"## {name}\n" in text
        for field in part.get("properties", {}):
            assert f"| `{field}` |" in text
