"""What a checkpoint tells of the service that it is of."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from provisioner.control.recorded import recorded, recorded_origin
from provisioner.engine.checkpoint import Resource, parse
from provisioner.errors import PermanentError
from provisioner.identity import ANNOTATION_BACKEND, ANNOTATION_FIELD_MANAGER, Origin, for_name
from provisioner.spec import parse_spec

IDENTITY = for_name("p", "d", namespace="team", name="graph")
SPEC = parse_spec({"image": "a:1", "ports": [{"name": "grpc", "port": 9000}], "replicas": 3})
URN = "urn:pulumi:s::data-service::"


def checkpoint(inputs: Any, outputs: Any = None, pending: bool = False) -> Any:
    component = {"urn": f"{URN}data-service:index:DataService::graph", "type": "data-service:index:DataService"}
    stack = {"urn": f"{URN}pulumi:pulumi:Stack::s", "type": "pulumi:pulumi:Stack", "outputs": outputs or {}}
    resources = [stack, {**component, "inputs": inputs}] if inputs is not None else [stack]
    operations = [{"type": "creating", "resource": component}] if pending else []
    latest = {"resources": resources, "pending_operations": operations}
    return parse("s", json.dumps({"version": 3, "checkpoint": {"latest": latest}}).encode())


INPUTS = {"identity": asdict(IDENTITY), "spec": SPEC.document()}


def test_nothing_is_recorded_without_a_stack_or_a_component():
    assert recorded(None) is None
    assert recorded(checkpoint(None)) is None


def test_identity_and_specification_are_read_back():
    # As the engine writes numbers: 3.0 is 3.
    found = recorded(checkpoint({**INPUTS, "spec": {**SPEC.document(), "replicas": 3.0}}))
    assert found is not None
    assert (found.identity, found.spec, found.applied) == (IDENTITY, SPEC, False)


def test_applied_is_what_the_outputs_prove():
    done = {"specHash": SPEC.digest()}
    for found, applied in (
        (checkpoint(INPUTS, done), True),
        (checkpoint(INPUTS, done, pending=True), False),
        # Another specification was begun since: the outputs are still those of this one.
        (checkpoint({**INPUTS, "spec": {**SPEC.document(), "replicas": 4}}, done), False),
        (checkpoint(INPUTS), False),
    ):
        record = recorded(found)
        assert record is not None
        assert record.applied is applied


@pytest.mark.parametrize(
    "inputs", [{"identity": {}}, {**INPUTS, "identity": 3}, {**INPUTS, "spec": {"imgae": "a"}}, {"spec": {}}]
)
def test_a_record_of_another_version_is_said_to_be_one(inputs: Any):
    with pytest.raises(PermanentError) as caught:
        recorded(checkpoint(inputs))
    assert caught.value.reason == "RecordUnreadable"
    assert "stack s" in caught.value.message


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({ANNOTATION_BACKEND: "b", ANNOTATION_FIELD_MANAGER: "m"}, Origin("c", "b", "m")),
        ({ANNOTATION_FIELD_MANAGER: "m"}, Origin("c", "", "m")),
        # As versions made them that knew nothing of a field manager of their own.
        ({ANNOTATION_BACKEND: "b"}, Origin("c", "b", "")),
        ({}, Origin("c")),
    ],
)
def test_its_objects_say_where_it_is_recorded_and_who_manages_them(annotations: dict[str, str], told: Origin):
    found = checkpoint({**INPUTS, "cluster": "c"})
    inputs = {"metadata": {"name": "graph", "annotations": annotations}}
    service = Resource(f"{URN}kubernetes:core/v1:Service::graph", "kubernetes:core/v1:Service", inputs=inputs)
    assert recorded_origin(replace(found, resources=(*found.resources, service))) == told


def test_without_objects_only_the_cluster_is_known():
    assert recorded_origin(None) == Origin()
    assert recorded_origin(checkpoint({**INPUTS, "cluster": "c"})) == Origin("c")
