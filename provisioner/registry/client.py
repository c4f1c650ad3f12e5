"""The registry as a library, for coroutines: find and call the deployed agents from a program.

The logic is that of the gateway; this is a thin face of it. The one for
ordinary code is in `blocking`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from flyteidl.admin import agent_pb2
from google.protobuf.message import Message

from provisioner.errors import PermanentError, ProvisionerError, TransientError
from provisioner.registry.calls import Caller, CallRefusedError, Metadata
from provisioner.registry.channels import ChannelPool
from provisioner.registry.config import Tls
from provisioner.registry.forward import Forwarder
from provisioner.registry.metrics import Metrics
from provisioner.registry.source import ConfigSource
from provisioner.registry.table import RoutingTable
from provisioner.registry.watch import STALE_AFTER, Discovery, Watch
from provisioner.registry.wire import FORWARDED

_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
}


def _error(method: str, code: grpc.StatusCode, details: str) -> ProvisionerError:
    """A gRPC status as one of this package's errors; its reason is the code in CamelCase."""
    reason = code.name.title().replace("_", "")
    message = f"{method} failed with {code.name}: {details}"
    if code in _PASSING:
        return TransientError(message, reason=reason, hint="see `provisioner agents` for which agents answer")
    return PermanentError(message, reason=reason, hint="see `provisioner agents` for what is served")


class AsyncAgentRegistry:
    """The deployed agents, for coroutines.

    Use it as an async context manager: entering asks all agents once and then
    keeps asking.

    Args:
        config: Configuration file or folder; None when `discovery` finds all.
        stale_after: Seconds for which a silent agent keeps its entries.
        poll_interval: Seconds between rounds, or None for the configuration's.
        agent_tls: Files for connections to agents that name none themselves.
        discovery: Finds further agents.
        watch: Keep asking. Without it the table changes by `refresh` only.

    Raises:
        ProvisionerError: The configuration cannot be used.

    Example:
        >>> async def phase(task: agent_pb2.GetTaskRequest) -> int:
        ...     async with AsyncAgentRegistry(Path("agents.yaml")) as registry:
        ...         return (await registry.get_task(task)).resource.phase
    """

    def __init__(
        self,
        config: Path | None,
        *,
        stale_after: float = STALE_AFTER,
        poll_interval: float | None = None,
        agent_tls: Tls | None = None,
        discovery: Discovery | None = None,
        watch: bool = True,
    ) -> None:
        metrics = Metrics()
        self._pool = ChannelPool(default_tls=agent_tls)
        source = ConfigSource(config, discovering=discovery is not None)
        self._watch = Watch(
            source,
            self._pool,
            metrics,
            stale_after=stale_after,
            poll_interval=poll_interval,
            discovery=discovery,
        )
        self._forwarder = Forwarder(lambda: self._watch.table, self._pool, metrics)
        self._watching = watch
        self._rounds: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._watch.round()
        if self._watching:
            self._rounds = asyncio.create_task(self._watch.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rounds is not None:
            self._rounds.cancel()
            with suppress(asyncio.CancelledError):
                await self._rounds
        await self._pool.close()

    @property
    def table(self) -> RoutingTable:
        """The current routing table."""
        return self._watch.table

    @property
    def source(self) -> ConfigSource:
        """The configuration in use."""
        return self._watch.source

    async def refresh(self) -> RoutingTable:
        """Ask all agents now and return the new table."""
        return await self._watch.round()

    async def tables(self) -> AsyncIterator[RoutingTable]:
        """The table now, and each new one after every round."""
        yield self.table
        while True:
            yield await self._watch.next_table()

    async def _unary(
        self, name: str, request: Message, response: type[Any], seconds: float | None, metadata: Metadata
    ) -> Any:
        try:
            answer = await self._forwarder.unary(
                FORWARDED[name], request.SerializeToString(), Caller(metadata, seconds)
            )
        except grpc.aio.AioRpcError as error:
            raise _error(name, error.code(), error.details() or "") from error
        except CallRefusedError as error:
            raise _error(name, error.code, error.details) from error
        return response.FromString(answer)

    async def create_task(
        self, request: agent_pb2.CreateTaskRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.CreateTaskResponse:
        """Create a task on the agent that serves its type. Never repeated.

        Args:
            request: Its `template` says the type and version.
            seconds: Deadline, beside the agent's own timeout.
            metadata: Sent along.

        Raises:
            TransientError: The agent cannot be reached or was too slow.
            PermanentError: It refused, or nobody serves the type.
        """
        response: agent_pb2.CreateTaskResponse = await self._unary(
            "CreateTask", request, agent_pb2.CreateTaskResponse, seconds, metadata
        )
        return response

    async def get_task(
        self, request: agent_pb2.GetTaskRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.GetTaskResponse:
        """Ask for a task's state. Arguments and errors are those of `create_task`."""
        response: agent_pb2.GetTaskResponse = await self._unary(
            "GetTask", request, agent_pb2.GetTaskResponse, seconds, metadata
        )
        return response

    async def delete_task(
        self, request: agent_pb2.DeleteTaskRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.DeleteTaskResponse:
        """Delete a task. Arguments and errors are those of `create_task`."""
        response: agent_pb2.DeleteTaskResponse = await self._unary(
            "DeleteTask", request, agent_pb2.DeleteTaskResponse, seconds, metadata
        )
        return response

    async def get_task_metrics(
        self, request: agent_pb2.GetTaskMetricsRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.GetTaskMetricsResponse:
        """Ask for a task's metrics. Arguments and errors are those of `create_task`."""
        response: agent_pb2.GetTaskMetricsResponse = await self._unary(
            "GetTaskMetrics", request, agent_pb2.GetTaskMetricsResponse, seconds, metadata
        )
        return response

    async def get_task_logs(
        self, request: agent_pb2.GetTaskLogsRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> AsyncIterator[agent_pb2.GetTaskLogsResponse]:
        """Read a task's logs. Arguments and errors are those of `create_task`."""
        caller = Caller(metadata, seconds)
        stream = self._forwarder.server_stream(FORWARDED["GetTaskLogs"], request.SerializeToString(), caller)
        try:
            async for message in stream:
                yield agent_pb2.GetTaskLogsResponse.FromString(message)
        except grpc.aio.AioRpcError as error:
            raise _error("GetTaskLogs", error.code(), error.details() or "") from error
        except CallRefusedError as error:
            raise _error("GetTaskLogs", error.code, error.details) from error
        finally:
            await stream.aclose()

    async def execute_task_sync(
        self,
        requests: AsyncIterable[agent_pb2.ExecuteTaskSyncRequest],
        *,
        seconds: float | None = None,
        metadata: Metadata = (),
    ) -> AsyncIterator[agent_pb2.ExecuteTaskSyncResponse]:
        """Run a sync task: streams both ways. Never repeated.

        Args:
            requests: The header first, then the inputs.
            seconds: Deadline, beside the agent's own timeout.
            metadata: Sent along.

        Raises:
            TransientError: The agent cannot be reached or was too slow.
            PermanentError: It refused, or nobody serves the type.
        """

        async def serialised() -> AsyncIterator[bytes]:
            async for request in requests:
                yield request.SerializeToString()

        stream = self._forwarder.both_stream(FORWARDED["ExecuteTaskSync"], serialised(), Caller(metadata, seconds))
        try:
            async for message in stream:
                yield agent_pb2.ExecuteTaskSyncResponse.FromString(message)
        except grpc.aio.AioRpcError as error:
            raise _error("ExecuteTaskSync", error.code(), error.details() or "") from error
        except CallRefusedError as error:
            raise _error("ExecuteTaskSync", error.code, error.details) from error
        finally:
            await stream.aclose()
