import tracemalloc

import pytest
from flyteidl.admin import agent_pb2
from flyteidl.core import identifier_pb2, literals_pb2, tasks_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from provisioner.registry.wire import FORWARDED, MalformedRequestError, task_of

names = st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable())
versions = st.integers(min_value=-(2**31), max_value=2**31 - 1)
payloads = st.binary(max_size=300)


def template(name, version):
    return tasks_pb2.TaskTemplate(
        id=identifier_pb2.Identifier(project="p", name="n"),
        type=name,
        task_type_version=version,
        metadata=tasks_pb2.TaskMetadata(discoverable=True, discovery_version="1"),
        container=tasks_pb2.Container(image="i", args=["type", "task_type_version"]),
    )


def inputs(payload):
    literal = literals_pb2.Literal(scalar=literals_pb2.Scalar(binary=literals_pb2.Binary(value=payload)))
    return literals_pb2.LiteralMap(literals={"x": literal})


@given(names, versions, payloads)
def test_create_is_routed_by_its_template(name, version, payload):
    request = agent_pb2.CreateTaskRequest(
        inputs=inputs(payload), template=template(name, version), output_prefix="s3://"
    )
    assert task_of("CreateTask", request.SerializeToString()) == (name, version)


@given(names, versions, payloads)
def test_a_sync_stream_is_routed_by_its_header(name, version, payload):
    header = agent_pb2.CreateRequestHeader(
        template=template(name, version), output_prefix="o", max_dataset_size_bytes=2**40
    )
    request = agent_pb2.ExecuteTaskSyncRequest(header=header)
    assert task_of("ExecuteTaskSync", request.SerializeToString()) == (name, version)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("GetTask", agent_pb2.GetTaskRequest),
        ("DeleteTask", agent_pb2.DeleteTaskRequest),
        ("GetTaskMetrics", agent_pb2.GetTaskMetricsRequest),
        ("GetTaskLogs", agent_pb2.GetTaskLogsRequest),
    ],
)
@given(names, names, versions, payloads)
def test_the_others_are_routed_by_category_else_by_the_older_type(method, message, name, older, version, meta):
    category = agent_pb2.TaskCategory(name=name, version=version)
    both = message(task_type=older, resource_meta=meta, task_category=category)
    assert task_of(method, both.SerializeToString()) == (name, version)
    old = message(task_type=older, resource_meta=meta)
    assert task_of(method, old.SerializeToString()) == (older, 0)
    empty = message(task_type=older, resource_meta=meta, task_category=agent_pb2.TaskCategory(version=7))
    assert task_of(method, empty.SerializeToString()) == (older, 0)


@given(names, names, versions)
def test_a_message_in_two_parts_is_merged_as_protobuf_does(first, second, version):
    parts = [
        agent_pb2.CreateTaskRequest(template=template(first, version)),
        agent_pb2.CreateTaskRequest(template=tasks_pb2.TaskTemplate(type=second)),
    ]
    raw = b"".join(part.SerializeToString() for part in parts)
    whole = agent_pb2.CreateTaskRequest.FromString(raw).template
    assert task_of("CreateTask", raw) == (whole.type, whole.task_type_version)


@given(st.binary(max_size=200), st.sampled_from(sorted(FORWARDED)))
def test_any_bytes_are_either_read_as_protobuf_reads_them_or_refused(raw, method):
    try:
        found = task_of(method, raw)
    except MalformedRequestError:
        return
    message = {
        "CreateTask": agent_pb2.CreateTaskRequest,
        "ExecuteTaskSync": agent_pb2.ExecuteTaskSyncRequest,
        "GetTask": agent_pb2.GetTaskRequest,
        "DeleteTask": agent_pb2.DeleteTaskRequest,
        "GetTaskMetrics": agent_pb2.GetTaskMetricsRequest,
        "GetTaskLogs": agent_pb2.GetTaskLogsRequest,
    }[method]
    try:
        parsed = message.FromString(raw)
    except DecodeError:
        return  # deeper parts are not looked at; the agent refuses them
    if method == "CreateTask":
        assert found == (parsed.template.type, parsed.template.task_type_version)
    elif method == "ExecuteTaskSync":
        assert found[0]
    else:
        category = parsed.task_category
        assert found == ((category.name, category.version) if category.name else (parsed.task_type, 0))


@pytest.mark.parametrize("method", sorted(FORWARDED))
@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\xff" * 11, b"\x12\xff\xff\xff\xff\x0f", b"\x0b\x0c", b"\x12\x02\x12\x05"]
)
def test_what_names_no_type_is_refused(method, raw):
    with pytest.raises(MalformedRequestError):
        task_of(method, raw)


def test_a_newer_field_is_stepped_over():
    unknown = b"\xfa\x3e\x03abc" + b"\xf9\x3e" + b"12345678" + b"\xfd\x3e" + b"1234" + b"\xf8\x3e\x96\x01"
    request = agent_pb2.CreateTaskRequest(template=template("sensor", 3)).SerializeToString()
    assert task_of("CreateTask", unknown + request + unknown) == ("sensor", 3)


def test_an_input_of_megabytes_is_not_copied():
    request = agent_pb2.CreateTaskRequest(
        inputs=inputs(b"x" * 8_000_000), template=template("sensor", 0)
    ).SerializeToString()
    tracemalloc.start()
    assert task_of("CreateTask", request) == ("sensor", 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_create_and_execute_are_never_repeatable():
    assert {name for name, method in FORWARDED.items() if not method.repeatable} == {"CreateTask", "ExecuteTaskSync"}
