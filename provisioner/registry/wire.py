"""The methods of the three agent services, and what of a request decides its way.

A gateway that parsed and re-serialised every message would pay for inputs of
megabytes, and would drop fields that a newer flyteidl has. So requests are
carried as bytes, and only the task type and version are read from them, by
walking over the few outermost fields (the encoding is that of
https://protobuf.dev/programming-guides/encoding/). Field numbers come from
flyteidl's own descriptors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from flyteidl.admin import agent_pb2
from flyteidl.core import tasks_pb2

ASYNC_SERVICE = "flyteidl.service.AsyncAgentService"
SYNC_SERVICE = "flyteidl.service.SyncAgentService"
METADATA_SERVICE = "flyteidl.service.AgentMetadataService"
SERVICES = (ASYNC_SERVICE, SYNC_SERVICE, METADATA_SERVICE)

_VARINT, _FIXED64, _LENGTH, _GROUP, _END_GROUP, _FIXED32 = range(6)
_Field = tuple[int, int, "int | memoryview"]


class MalformedRequestError(ValueError):
    """The bytes are not the message that they should be."""


class Shape(StrEnum):
    """How many messages go each way."""

    UNARY = "unary"
    SERVER_STREAM = "server stream"
    BOTH_STREAM = "both stream"


@dataclass(frozen=True)
class Method:
    """One method that is forwarded.

    Attributes:
        service: Full name of its service.
        name: Its name.
        shape: How many messages go each way.
        repeatable: Sending it twice does no harm, so UNAVAILABLE is retried.
    """

    service: str
    name: str
    shape: Shape
    repeatable: bool

    @property
    def path(self) -> str:
        """Its path in HTTP/2."""
        return f"/{self.service}/{self.name}"


FORWARDED = {
    method.name: method
    for method in (
        Method(ASYNC_SERVICE, "CreateTask", Shape.UNARY, repeatable=False),
        Method(ASYNC_SERVICE, "GetTask", Shape.UNARY, repeatable=True),
        Method(ASYNC_SERVICE, "DeleteTask", Shape.UNARY, repeatable=True),
        Method(ASYNC_SERVICE, "GetTaskMetrics", Shape.UNARY, repeatable=True),
        Method(ASYNC_SERVICE, "GetTaskLogs", Shape.SERVER_STREAM, repeatable=True),
        Method(SYNC_SERVICE, "ExecuteTaskSync", Shape.BOTH_STREAM, repeatable=False),
    )
}


def _number(message: object, name: str) -> int:
    return int(message.DESCRIPTOR.fields_by_name[name].number)  # type: ignore[attr-defined]


_TEMPLATE_TYPE = _number(tasks_pb2.TaskTemplate, "type")
_TEMPLATE_VERSION = _number(tasks_pb2.TaskTemplate, "task_type_version")
_CATEGORY_NAME = _number(agent_pb2.TaskCategory, "name")
_CATEGORY_VERSION = _number(agent_pb2.TaskCategory, "version")
_CREATE_TEMPLATE = _number(agent_pb2.CreateTaskRequest, "template")
_SYNC_HEADER = _number(agent_pb2.ExecuteTaskSyncRequest, "header")
_HEADER_TEMPLATE = _number(agent_pb2.CreateRequestHeader, "template")
_BY_CATEGORY = {
    name: (_number(message, "task_type"), _number(message, "task_category"))
    for name, message in {
        "GetTask": agent_pb2.GetTaskRequest,
        "DeleteTask": agent_pb2.DeleteTaskRequest,
        "GetTaskMetrics": agent_pb2.GetTaskMetricsRequest,
        "GetTaskLogs": agent_pb2.GetTaskLogsRequest,
    }.items()
}


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise MalformedRequestError("the message ends inside a number")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
    raise MalformedRequestError("a number is longer than ten bytes")


def _fields(data: memoryview) -> Iterator[_Field]:
    """Every outermost field: number, wire type, and value (the bytes of a message are not copied)."""
    place, size = 0, len(data)
    while place < size:
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if number == 0 or key > 0xFFFF_FFFF:
            raise MalformedRequestError("a field has no valid number")
        value: int | memoryview
        if kind == _VARINT:
            value, place = _varint(data, place)
        elif kind in (_LENGTH, _FIXED64, _FIXED32):
            if kind == _LENGTH:
                length, place = _varint(data, place)
            else:
                length = 8 if kind == _FIXED64 else 4
            if place + length > size:
                raise MalformedRequestError("the message ends inside a field")
            value = data[place : place + length]
            place += length
        else:
            raise MalformedRequestError("a field has an unknown wire type")
        yield number, kind, value


def _messages(data: memoryview, number: int) -> list[memoryview]:
    """The parts of an embedded message; the encoding allows it in several, to be merged."""
    return [
        value
        for field, kind, value in _fields(data)
        if field == number and isinstance(value, memoryview) and kind == _LENGTH
    ]


def _name_and_version(parts: list[memoryview], name_field: int, version_field: int) -> tuple[str, int]:
    name, version = "", 0
    for part in parts:
        for field, kind, value in _fields(part):
            if field == name_field and kind == _LENGTH:
                name = _text(value)
            elif field == version_field and kind == _VARINT and isinstance(value, int):
                low = value & 0xFFFF_FFFF
                version = low - (1 << 32) if low >= 1 << 31 else low
    return name, version


def _text(value: int | memoryview) -> str:
    try:
        return bytes(value).decode() if isinstance(value, memoryview) else ""
    except UnicodeDecodeError as error:
        raise MalformedRequestError("the task type is not text in UTF-8") from error


def task_of(method: str, request: bytes) -> tuple[str, int]:
    """The task type and version that a request is about.

    Args:
        method: For example `CreateTask`; one of `FORWARDED`.
        request: The serialised message. For `ExecuteTaskSync` the first one.

    Returns:
        Type and version. A request that names just the older `task_type` means
        version 0, as in flytekit's own service.

    Raises:
        MalformedRequestError: It is not such a message, or names no type.
    """
    data = memoryview(request)
    if method in _BY_CATEGORY:
        type_field, category_field = _BY_CATEGORY[method]
        name, version = _name_and_version(_messages(data, category_field), _CATEGORY_NAME, _CATEGORY_VERSION)
        if not name:
            parts = _messages(data, type_field)
            name, version = (_text(parts[-1]), 0) if parts else ("", 0)
    else:
        if method == "ExecuteTaskSync":
            headers = _messages(data, _SYNC_HEADER)
            if not headers:
                raise MalformedRequestError("the first message of the stream is not a header")
            templates = [part for header in headers for part in _messages(header, _HEADER_TEMPLATE)]
        else:
            templates = _messages(data, _CREATE_TEMPLATE)
        name, version = _name_and_version(templates, _TEMPLATE_TYPE, _TEMPLATE_VERSION)
    if not name:
        raise MalformedRequestError("the request names no task type")
    return name, version
