"""A flyteadmin that knows some executions: flyteidl's own service over real gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
from flyteidl.admin import execution_pb2
from flyteidl.core.execution_pb2 import WorkflowExecution
from flyteidl.service import admin_pb2_grpc
from ports import hold_port

RUNNING, FAILED = WorkflowExecution.RUNNING, WorkflowExecution.FAILED


class Admin(admin_pb2_grpc.AdminServiceServicer):
    """Knows executions by their name.

    Attributes:
        phases: Of each execution.
        updated: When all of them changed last.
        failure: What it answers instead, if anything.
        asked: `PROJECT:DOMAIN:NAME` of each execution that was asked for.
        address: Where it listens; nobody else does while it is away.
    """

    def __init__(self) -> None:
        self._held, port = hold_port()
        self.phases: dict[str, int] = {}
        self.updated = datetime.now(UTC).replace(microsecond=0)
        self.failure: grpc.StatusCode | None = None
        self.asked: list[str] = []
        self.address = f"127.0.0.1:{port}"

    def GetExecution(self, request: Any, context: grpc.ServicerContext) -> execution_pb2.Execution:
        self.asked.append(f"{request.id.project}:{request.id.domain}:{request.id.name}")
        if self.failure is not None:
            context.abort(self.failure, "out of order")
        if request.id.name not in self.phases:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such execution")
        answer = execution_pb2.Execution(id=request.id)
        answer.closure.phase = self.phases[request.id.name]
        answer.closure.updated_at.FromDatetime(self.updated)
        return answer


@contextmanager
def serving(admin: Admin) -> Iterator[Admin]:
    """It answers as long as the context lasts."""
    server = grpc.server(ThreadPoolExecutor(4))
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
    server.add_insecure_port(admin.address)
    server.start()
    yield admin
    server.stop(0).wait()
