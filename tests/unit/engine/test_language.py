"""What ends a program: its own fault, or what the engine answers it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pulumi
import pytest
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import engine_pb2_grpc, language_pb2, resource_pb2, resource_pb2_grpc

from provisioner.engine.language import Language


class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """The engine's own service, after its provider was killed: the words are those of Pulumi 3.274.1."""

    def SupportsFeature(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        return resource_pb2.SupportsFeatureResponse(hasSupport=True)

    def GetDeploymentInfo(self, _request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "an older engine")

    def RegisterResource(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.type == "test:index:Piece":
            context.abort(grpc.StatusCode.CANCELLED, "context canceled")
        return resource_pb2.RegisterResourceResponse(urn=f"urn:pulumi:s::p::{request.type}::{request.name}")

    def RegisterResourceOutputs(self, _request: Any, _context: grpc.ServicerContext) -> Empty:
        return Empty()


class Log(engine_pb2_grpc.EngineServicer):
    def Log(self, _request: Any, _context: grpc.ServicerContext) -> Empty:
        return Empty()


@contextmanager
def engine() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(Monitor(), server)
    engine_pb2_grpc.add_EngineServicer_to_server(Log(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def fails() -> None:
    raise ValueError("boom")


def handles_another_badly() -> None:
    try:
        fails()
    except ValueError:
        raise Exception("worse") from None  # noqa: TRY002 - the SDK raises such ones


@pytest.mark.parametrize(
    ("program", "answer", "own"),
    [
        (
            lambda: pulumi.ComponentResource("test:index:Piece", "one"),
            "the program was stopped: context canceled",
            None,
        ),
        (fails, "the program failed: ValueError: boom", ValueError),
        (handles_another_badly, "the program failed: Exception: worse", Exception),
    ],
)
def test_who_ended_a_program(program: Any, answer: str, own: type[Exception] | None) -> None:
    language = Language(program)
    with engine() as address:
        request = language_pb2.RunRequest(
            project="p", stack="s", monitor_address=address, args=[address], parallel=4, organization="organization"
        )
        assert language.Run(request, None).error == answer
    assert (type(language.error) if language.error else None) is own
