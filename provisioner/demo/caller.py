"""Calls the server as propeller does: the same three requests, with a whole task execution id."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from flyteidl.admin.agent_pb2 import (
    CreateTaskRequest,
    DeleteTaskRequest,
    GetTaskRequest,
    Resource,
    TaskCategory,
    TaskExecutionMetadata,
)
from flyteidl.core import identifier_pb2, literals_pb2, tasks_pb2
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.literals_pb2 import LiteralMap
from flyteidl.service.agent_pb2_grpc import AsyncAgentServiceStub
from flytekit import FlyteContext
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import Literal

from provisioner.demo.report import DemoError
from provisioner.errors import TransientError
from provisioner.flyte import DataService
from provisioner.flyte.task import TASK_TYPE

# More than propeller's own 10 s: on a busy machine a slow answer is no failure of what is shown.
_TIMEOUT = 60.0
_POLL_SECONDS = 0.25
_FINAL = (TaskExecution.SUCCEEDED, TaskExecution.FAILED, TaskExecution.ABORTED, TaskExecution.RETRYABLE_FAILED)


@dataclass(frozen=True)
class Execution:
    """Which task execution calls.

    Attributes:
        name: Name of the Flyte execution.
        namespace: Kubernetes namespace of its project and domain.
        node: Node of the workflow.
        attempt: Counts from 0.
    """

    name: str
    namespace: str
    node: str = "n0"
    attempt: int = 0


class Caller:
    """Propeller's side of the three calls.

    Args:
        address: `host:port` of the server.
        task_type: Of the tasks.
    """

    def __init__(self, address: str, task_type: str = TASK_TYPE) -> None:
        self._category = TaskCategory(name=task_type)
        self._channel = grpc.insecure_channel(address)
        self._stub = AsyncAgentServiceStub(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def create(
        self, template: tasks_pb2.TaskTemplate, execution: Execution, **inputs: str | literals_pb2.Literal
    ) -> bytes:
        """CreateTask.

        Args:
            template: The task.
            execution: On whose behalf.
            inputs: Of the task; a text as such.

        Returns:
            The resource meta.

        Raises:
            TransientError: The call failed; propeller would start another attempt.
        """
        run = identifier_pb2.WorkflowExecutionIdentifier(
            project=template.id.project, domain=template.id.domain, name=execution.name
        )
        node = identifier_pb2.NodeExecutionIdentifier(node_id=execution.node, execution_id=run)
        metadata = TaskExecutionMetadata(
            task_execution_id=identifier_pb2.TaskExecutionIdentifier(
                task_id=template.id, node_execution_id=node, retry_attempt=execution.attempt
            ),
            namespace=execution.namespace,
        )
        request = CreateTaskRequest(
            inputs=LiteralMap(literals={name: _literal(value) for name, value in inputs.items()}),
            template=template,
            output_prefix=f"s3://flyte/{execution.name}/{execution.node}/data/{execution.attempt}",
            task_execution_metadata=metadata,
        )
        try:
            return bytes(self._stub.CreateTask(request, timeout=_TIMEOUT).resource_meta)
        except grpc.RpcError as error:
            raise _call_failed("CreateTask", error) from error

    def poll(self, meta: bytes) -> Resource:
        """GetTask.

        Args:
            meta: What `create` returned.

        Raises:
            TransientError: The call failed; propeller would count it.
        """
        request = GetTaskRequest(resource_meta=meta, task_category=self._category)
        try:
            return self._stub.GetTask(request, timeout=_TIMEOUT).resource
        except grpc.RpcError as error:
            raise _call_failed("GetTask", error) from error

    def delete(self, meta: bytes) -> None:
        """DeleteTask.

        Args:
            meta: What `create` returned.

        Raises:
            TransientError: The call failed; propeller would repeat it.
        """
        request = DeleteTaskRequest(resource_meta=meta, task_category=self._category)
        try:
            self._stub.DeleteTask(request, timeout=_TIMEOUT)
        except grpc.RpcError as error:
            raise _call_failed("DeleteTask", error) from error

    def final(self, meta: bytes, seconds: float, told: Callable[[Resource], None] = lambda _: None) -> Resource:
        """Poll until the phase is final.

        Args:
            meta: What `create` returned.
            seconds: How long at most.
            told: Each answer, as it comes.

        Raises:
            DemoError: It is not final in time.
        """
        deadline = time.monotonic() + seconds
        while (answer := self.poll(meta)).phase not in _FINAL:
            told(answer)
            if time.monotonic() > deadline:
                raise DemoError(f"not final after {seconds:g} s: {answer.message}")
            time.sleep(_POLL_SECONDS)
        told(answer)
        return answer

    def service(self, meta: bytes, seconds: float, told: Callable[[Resource], None] = lambda _: None) -> DataService:
        """Poll until the service is ready, and read the task's output as the next task would.

        Args:
            meta: What `create` returned.
            seconds: How long at most.
            told: Each answer, as it comes.

        Raises:
            DemoError: It failed, or is not ready in time.
        """
        answer = self.final(meta, seconds, told)
        if answer.phase != TaskExecution.SUCCEEDED:
            raise DemoError(f"the service failed: {answer.message}")
        return read_service(answer)


def read_service(answer: Resource) -> DataService:
    """The task's output, read as the next task would.

    Args:
        answer: An answer of phase SUCCEEDED.
    """
    literal = Literal.from_flyte_idl(answer.outputs.literals["service"])
    value: DataService = TypeEngine.to_python_value(FlyteContext.current_context(), literal, DataService)
    return value


def _literal(value: str | literals_pb2.Literal) -> literals_pb2.Literal:
    if isinstance(value, literals_pb2.Literal):
        return value
    primitive = literals_pb2.Primitive(string_value=value)
    return literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=primitive))


def _call_failed(call: str, error: grpc.RpcError) -> TransientError:
    return TransientError(f"{call} failed: {error.code().name}: {error.details()}", reason="CallFailed")
