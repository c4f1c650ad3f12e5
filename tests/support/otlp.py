"""An OTLP receiver over gRPC, which keeps what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.spans: dict[str, list[Span]] = {}
        self.services: set[str] = set()

    def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            attributes = {item.key: item.value.string_value for item in resource.resource.attributes}
            self.services.add(attributes["service.name"])
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.setdefault(span.name, []).append(span)
        return trace_service_pb2.ExportTraceServiceResponse()

    def attributes(self, name: str) -> dict[str, str]:
        return {item.key: item.value.string_value for item in self.spans[name][-1].attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    made, server = Receiver(), grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(made, server)
    made.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield made
    server.stop(None).wait()
