"""Checkpoints as the engine writes them, whole and damaged."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.engine.checkpoint import CheckpointError, Component, edited, first, parse, parse_time

STACK = "urn:pulumi:graph::data-service::pulumi:pulumi:Stack::data-service-graph"
COMPONENT = "urn:pulumi:graph::data-service::data-service:index:DataService::graph"
SERVICE = "urn:pulumi:graph::data-service::data-service:index:DataService$kubernetes:core/v1:Service::graph"
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:abc"}


def document() -> dict[str, Any]:
    return {
        "version": 3,
        "checkpoint": {
            "stack": "organization/data-service/graph",
            "latest": {
                "manifest": {"time": "2026-05-09T07:29:33.123456789Z", "magic": "m", "version": "v3.274.1"},
                "secrets_providers": {"type": "passphrase", "state": {"salt": "v1:x"}},
                "resources": [
                    {
                        "urn": STACK,
                        "custom": False,
                        "type": "pulumi:pulumi:Stack",
                        "outputs": {"name": "graph", "key": SECRET},
                    },
                    {
                        "urn": COMPONENT,
                        "custom": False,
                        "type": "data-service:index:DataService",
                        "inputs": {"spec": {"replicas": 3, "env": [SECRET]}},
                        "parent": STACK,
                    },
                ],
                "pending_operations": [
                    {
                        "resource": {
                            "urn": SERVICE,
                            "custom": True,
                            "type": "kubernetes:core/v1:Service",
                            "inputs": {"metadata": {"name": "graph", "namespace": "ml"}},
                            "parent": COMPONENT,
                        },
                        "type": "creating",
                    }
                ],
                "metadata": {},
            },
        },
    }


def test_what_a_checkpoint_says() -> None:
    checkpoint = parse("graph", json.dumps(document()).encode())
    assert checkpoint.engine == "v3.274.1"
    assert checkpoint.modified == datetime(2026, 5, 9, 7, 29, 33, 123456, UTC)
    assert checkpoint.outputs == {"name": "graph", "key": "[secret]"}
    assert checkpoint.component_inputs == {"spec": {"replicas": 3, "env": ["[secret]"]}}
    assert [(item.kind, item.resource.name) for item in checkpoint.pending_operations] == [("creating", "graph")]
    assert checkpoint.objects == ()


def test_compressed_checkpoints_are_read() -> None:
    content = json.dumps(document()).encode()
    assert parse("graph", gzip.compress(content)) == parse("graph", content)


def test_what_stack_export_prints_is_read() -> None:
    exported = {"version": 3, "deployment": document()["checkpoint"]["latest"]}
    assert parse("graph", json.dumps(exported).encode()).outputs["name"] == "graph"


@pytest.mark.parametrize(
    "content",
    [
        # Between the two writes of `stack init`.
        b'{"version":3,"checkpoint":{"stack":"organization/data-service/a"}}',
        b'{"version":3,"checkpoint":{"stack":"organization/data-service/a","latest":null}}',
        b'{"version":3,"checkpoint":{"latest":{"manifest":{"time":"0001-01-01T00:00:00Z"}}}}',
    ],
)
def test_a_stack_that_never_had_anything(content: bytes) -> None:
    checkpoint = parse("a", content)
    assert (checkpoint.resources, checkpoint.modified, dict(checkpoint.outputs)) == ((), None, {})


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'"text"', b"{}", b'{"checkpoint": 5}', b"\x1f\x8b", b"\xff\xfe", b"5"]
)
def test_what_is_no_checkpoint(content: bytes) -> None:
    with pytest.raises(CheckpointError):
        parse("a", content)


@given(st.integers(min_value=0, max_value=len(json.dumps(document())) - 1))
def test_a_checkpoint_cut_short_anywhere_is_noticed(length: int) -> None:
    with pytest.raises(CheckpointError):
        parse("graph", json.dumps(document()).encode()[:length])


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    try:
        parse("graph", content)
    except CheckpointError:
        return


def test_an_edit_leaves_the_rest_as_it_was() -> None:
    checkpoint = parse("graph", json.dumps(document()).encode())
    resources = checkpoint.deployment["resources"]
    after = json.loads(edited(checkpoint, resources=resources[:1], pending_operations=()))
    expected = document()
    expected["checkpoint"]["latest"]["resources"] = resources[:1]
    expected["checkpoint"]["latest"]["pending_operations"] = []
    assert after == expected
    assert parse("graph", json.dumps(document()).encode()) == checkpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T13:39:11.249795358Z", datetime(2026, 11, 30, 13, 39, 11, 249795, UTC)),
        ("2026-11-30T13:39:11Z", datetime(2026, 11, 30, 13, 39, 11, 0, UTC)),
        ("2026-11-30T13:39:11.5+02:00", datetime(2026, 11, 30, 13, 39, 11, 500000, timezone(timedelta(hours=2)))),
    ],
)
def test_times_as_go_writes_them(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected


def test_the_first_checkpoint_is_that_of_an_engine_that_has_just_registered_the_component():
    found = parse("graph", first("graph", Component("data-service:index:DataService", "graph", {"spec": {"a": 1}})))
    assert [(resource.urn, resource.parent) for resource in found.resources] == [(STACK, ""), (COMPONENT, STACK)]
    assert found.component_inputs == {"spec": {"a": 1}}
    assert (found.objects, found.pending_operations, found.outputs) == ((), (), {})
    assert found.modified is not None
    assert abs(found.modified - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_first_checkpoint_of_an_empty_stack_is_what_stack_init_writes():
    assert json.loads(first("graph")) == {"version": 3, "checkpoint": {"stack": "organization/data-service/graph"}}
