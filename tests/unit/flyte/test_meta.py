"""What Flyte keeps for us: small, versioned, and never a reason to raise."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.control.request import ServiceRequest
from provisioner.errors import PermanentError
from provisioner.flyte.meta import MAX_BYTES, USUAL_BYTES, Attached, DataServiceMeta, Rejected, Unreadable, Wanted
from provisioner.identity import TaskExecutionId, User, for_task
from provisioner.spec import DataServiceSpec, Port

TASK = TaskExecutionId(
    project="flytesnacks",
    domain="development",
    execution="f6c1e0a52b7d94f2e8aa",
    node="n0",
    task="gnn.workflow.graph_store",
    task_version="2Dk3uQ0yGQm4Jzv",
    attempt=0,
)


def wanted(**fields: object) -> Wanted:
    values = {"image": "registry.example/store:1", "ports": (Port(name="main", port=9000),), **fields}
    spec = DataServiceSpec.model_validate(values)
    identity = for_task(TASK, namespace="flytesnacks-development", name="graph-store")
    return Wanted(ServiceRequest(identity, spec, 1_700_000_000.125), ("service",))


USER = User("p", "d", "e", "n0")
USUAL = wanted(
    command=("python", "-m", "gnn.store"),
    env={"SHARDS": "3", "NODES": "50000", "EDGES": "500000", "SEED": "7"},
    replicas=3,
    resources={"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
    readiness_probe={"http_get": {"port": "main", "path": "/ready"}, "period_seconds": 2},
    service_account="graph-reader",
    node_selector={"node.kubernetes.io/instance-type": "m5.2xlarge"},
)


@pytest.mark.parametrize(
    "content",
    [
        USUAL,
        wanted(env={f"V{i}": "x" * 40 for i in range(40)}),
        Wanted(USUAL.request, ("service",), ("graph-a", "graph-b")),
        Attached("ns", "graph", ("name",)),
        Attached("ns", "graph", ("name",), USER),
        Wanted(replace(USUAL.request, shared=True), ("service",), user=USER),
        Rejected("InvalidSpec", "two\nlines, ü", "a hint"),
    ],
)
def test_every_content_comes_back_as_it_was(content: object) -> None:
    assert DataServiceMeta.decode(DataServiceMeta(content).encode()).content == content


def test_a_usual_request_stays_under_a_kibibyte_and_readable() -> None:
    data = DataServiceMeta(USUAL).encode()
    assert len(data) < USUAL_BYTES
    assert json.loads(data)["v"] == 1


def test_a_large_request_is_deflated() -> None:
    content = wanted(env={f"VARIABLE_{i}": f"value {i}" for i in range(200)})
    assert len(DataServiceMeta(content).encode()) < 3 * USUAL_BYTES


def test_a_request_too_large_for_the_workflow_object_is_refused() -> None:
    noise = secrets.token_hex(10_000)
    with pytest.raises(PermanentError, match=str(MAX_BYTES)) as caught:
        DataServiceMeta(wanted(env={"NOISE": noise})).encode()
    assert caught.value.reason == "SpecTooLarge"


def test_a_newer_version_is_told_from_garbage_and_kept_as_it_is() -> None:
    data = b'{"v":2,"something":"new"}'
    meta = DataServiceMeta.decode(data)
    assert isinstance(meta.content, Unreadable)
    assert meta.content.newer
    assert "version 2" in meta.content.message
    assert meta.encode() == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b'{"v":0}',
        b'{"v":1}',
        b'{"v":"1","request":{}}',
        b'{"v":1,"request":{"identity":{},"spec":{},"acceptedAt":0}}',
        b'{"dataservice_config": {"Name": "gnn"}, "name": "gnn"}',
        b"x\x9c\x00",
        b"{" * 100_000,
    ],
)
def test_what_this_connector_did_not_write_is_unreadable(data: bytes) -> None:
    content = DataServiceMeta.decode(data).content
    assert isinstance(content, Unreadable)
    assert not content.newer


@given(st.binary(max_size=200))
def test_reading_never_raises(data: bytes) -> None:
    assert isinstance(DataServiceMeta.decode(data).content, Unreadable)


def test_a_bomb_is_not_inflated() -> None:
    import zlib

    content = DataServiceMeta.decode(zlib.compress(b"[" * 50_000_000)).content
    assert isinstance(content, Unreadable)


def test_what_the_first_version_wrote_is_read_by_every_later_one() -> None:
    written = (
        b'{"v":1,"request":{"identity":{"project":"p","domain":"d","namespace":"n","service":"g-1","stack":"g-1",'
        b'"owner":"e"},"spec":{"image":"a:1","ports":[{"name":"main","port":9000}],"replicas":2},'
        b'"acceptedAt":1700000000.125},"outputs":["service"]}'
    )
    content = DataServiceMeta.decode(written).content
    assert isinstance(content, Wanted)
    assert (content.request.stack, content.request.spec.replicas, content.outputs) == ("g-1", 2, ("service",))
    attached = DataServiceMeta.decode(b'{"v":1,"attached":{"namespace":"n","service":"g","outputs":["name"]}}').content
    assert attached == Attached("n", "g", ("name",))


def test_a_field_that_a_later_server_added_is_no_obstacle() -> None:
    document = json.loads(DataServiceMeta(USUAL).encode()) | {"later": {"some": "thing"}}
    assert DataServiceMeta.decode(json.dumps(document).encode()).content == USUAL
