"""The registry as a library, for ordinary code: the same calls, waiting for their answers.

The event loop runs in a thread of its own, so that it can be used from any
thread, from a signal handler, and below a framework that has its own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from flyteidl.admin import agent_pb2

from provisioner.registry.calls import Metadata
from provisioner.registry.client import AsyncAgentRegistry
from provisioner.registry.source import ConfigSource
from provisioner.registry.table import RoutingTable

T = TypeVar("T")


class AgentRegistry:
    """The deployed agents, for ordinary code. Safe to use from several threads.

    Args:
        config: Configuration file or folder; None when `discovery` finds all.
        **options: Those of `AsyncAgentRegistry`.

    Raises:
        ProvisionerError: The configuration cannot be used.

    Example:
        >>> with AgentRegistry(Path("agents.yaml")) as registry:  # doctest: +SKIP
        ...     registry.table.resolve("sensor", 0).agent
        'defaultAgent'
    """

    def __init__(self, config: Path | None, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agent-registry", daemon=True)
        self._thread.start()
        try:
            self._inner = self._run(self._open(config, options))
        except BaseException:
            self._stop()
            raise

    @staticmethod
    async def _open(config: Path | None, options: dict[str, Any]) -> AsyncAgentRegistry:
        return await AsyncAgentRegistry(config, **options).__aenter__()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop asking and close all channels. May be called twice."""
        if not self._loop.is_closed():
            self._run(self._inner.__aexit__(None, None, None))
            self._stop()

    @property
    def table(self) -> RoutingTable:
        """The current routing table."""
        return self._inner.table

    @property
    def source(self) -> ConfigSource:
        """The configuration in use."""
        return self._inner.source

    def refresh(self) -> RoutingTable:
        """Ask all agents now and return the new table."""
        return self._run(self._inner.refresh())

    def create_task(
        self, request: agent_pb2.CreateTaskRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.CreateTaskResponse:
        """See `AsyncAgentRegistry.create_task`."""
        return self._run(self._inner.create_task(request, seconds=seconds, metadata=metadata))

    def get_task(
        self, request: agent_pb2.GetTaskRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.GetTaskResponse:
        """See `AsyncAgentRegistry.create_task`."""
        return self._run(self._inner.get_task(request, seconds=seconds, metadata=metadata))

    def delete_task(
        self, request: agent_pb2.DeleteTaskRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.DeleteTaskResponse:
        """See `AsyncAgentRegistry.create_task`."""
        return self._run(self._inner.delete_task(request, seconds=seconds, metadata=metadata))

    def get_task_metrics(
        self, request: agent_pb2.GetTaskMetricsRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> agent_pb2.GetTaskMetricsResponse:
        """See `AsyncAgentRegistry.create_task`."""
        return self._run(self._inner.get_task_metrics(request, seconds=seconds, metadata=metadata))

    def get_task_logs(
        self, request: agent_pb2.GetTaskLogsRequest, *, seconds: float | None = None, metadata: Metadata = ()
    ) -> list[agent_pb2.GetTaskLogsResponse]:
        """All messages of a task's logs. See `AsyncAgentRegistry.get_task_logs`."""

        async def collect() -> list[agent_pb2.GetTaskLogsResponse]:
            return [item async for item in self._inner.get_task_logs(request, seconds=seconds, metadata=metadata)]

        return self._run(collect())

    def execute_task_sync(
        self,
        requests: Iterable[agent_pb2.ExecuteTaskSyncRequest],
        *,
        seconds: float | None = None,
        metadata: Metadata = (),
    ) -> list[agent_pb2.ExecuteTaskSyncResponse]:
        """All messages of the answer. See `AsyncAgentRegistry.execute_task_sync`."""

        async def sent() -> AsyncIterator[agent_pb2.ExecuteTaskSyncRequest]:
            for request in requests:
                yield request

        async def collect() -> list[agent_pb2.ExecuteTaskSyncResponse]:
            stream = self._inner.execute_task_sync(sent(), seconds=seconds, metadata=metadata)
            return [item async for item in stream]

        return self._run(collect())
