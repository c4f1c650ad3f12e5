"""The connector service: flytekit's own, made safe against slow calls, with errors that tell their cause.

flytekit runs every call in one pool of threads, so that some slow ones keep
GetTask waiting, and a GetTask that takes too long counts against its task.
Here each kind of call has a bound of its own: whatever creates, deletes or
reads logs, threads for GetTask are left.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import structlog
from flyteidl.admin import agent_pb2
from flytekit.exceptions.system import FlyteConnectorNotFound
from flytekit.extend.backend.base_connector import ConnectorRegistry
from flytekit.extend.backend.connector_service import AsyncConnectorService
from flytekit.extend.backend.utils import mirror_async_methods

from provisioner.errors import ProvisionerError, UsageError
from provisioner.flyte import insight
from provisioner.flyte.connector import DataServiceConnector
from provisioner.flyte.meta import Attached, Cleanup, DataServiceMeta, Wanted
from provisioner.tracing import NOTHING, Span, enabled, span

log = structlog.get_logger(__name__)

THREADS = 16
"""Calls answer from memory; these many may wait for the processor at once."""
_WRITES = THREADS // 2
_LOG_THREADS = 4


class Calls(AsyncConnectorService):  # type: ignore[misc]
    """flytekit's service with a bound for each kind of call. Made inside the event loop that serves it."""

    def __init__(self) -> None:
        self._writes = asyncio.Semaphore(_WRITES)
        self._writing: set[asyncio.Task[Any]] = set()
        # kubelet may take seconds; its threads are no other call's.
        self._logs = ThreadPoolExecutor(_LOG_THREADS, thread_name_prefix="logs")

    async def CreateTask(self, request: agent_pb2.CreateTaskRequest, context: Any) -> Any:
        """Create, beside at most 7 other writes."""
        with _traced("CreateTask", context, lambda: _asked_for(request)) as traced:
            answer = await self._write(super().CreateTask(request, context), context)
            if answer is not None and enabled():
                traced.tell(**_whose(answer.resource_meta))
            return _ended(traced, answer, context)

    async def GetTask(self, request: agent_pb2.GetTaskRequest, context: Any) -> Any:
        """Poll; it never waits for another kind of call."""
        with _traced("GetTask", context, lambda: _whose(request.resource_meta)) as traced:
            return _ended(traced, await _plainly(super().GetTask(request, context), context), context)

    async def DeleteTask(self, request: agent_pb2.DeleteTaskRequest, context: Any) -> Any:
        """Delete, beside at most 7 other writes."""
        with _traced("DeleteTask", context, lambda: _whose(request.resource_meta)) as traced:
            return _ended(traced, await self._write(super().DeleteTask(request, context), context), context)

    async def GetTaskMetrics(self, request: agent_pb2.GetTaskMetricsRequest, context: Any) -> Any:
        """The metrics that the request names; all when it names none."""
        connector, meta = await _addressed(request, context)
        call = mirror_async_methods(connector.get_metrics, resource_meta=meta, queries=list(request.queries))
        return await _or_abort(call, context)

    async def GetTaskLogs(self, request: agent_pb2.GetTaskLogsRequest, context: Any) -> AsyncIterator[Any]:
        """A token and a page, as the protocol has it; flytekit's own answer to this call is empty."""
        connector, meta = await _addressed(request, context)
        if not isinstance(connector, DataServiceConnector):
            yield await _or_abort(mirror_async_methods(connector.get_logs, resource_meta=meta), context)
            return
        read = functools.partial(connector.log_page, meta, lines=request.lines, token=request.token)
        page = await _or_abort(asyncio.get_running_loop().run_in_executor(self._logs, read), context)
        if page is not None:
            yield insight.logs_header(page)
            yield insight.logs_answer(page)

    async def _write(self, call: Awaitable[Any], context: Any) -> Any:
        async def bounded() -> Any:
            async with self._writes:
                return await _plainly(call, context)

        task = asyncio.create_task(bounded())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        # A caller who gives up ends neither the thread nor its share of the bound.
        return await asyncio.shield(task)


@contextmanager
def _traced(name: str, context: Any, attributes: Callable[[], dict[str, str]]) -> Iterator[Span]:
    """The span of a call; where nobody traces, nothing is read for it: GetTask comes often."""
    if not enabled():
        yield NOTHING
        return
    headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    with span(name, headers, **attributes()) as traced:
        yield traced


def _asked_for(request: agent_pb2.CreateTaskRequest) -> dict[str, str]:
    run = request.task_execution_metadata.task_execution_id.node_execution_id.execution_id
    whose = {"execution": run.name, "project": run.project, "domain": run.domain}
    return {"task_type": request.template.type, **whose}


def _whose(meta: bytes) -> dict[str, str]:
    """Attributes of a call's span."""
    content = DataServiceMeta.decode(meta).content
    if isinstance(content, Wanted):
        who = content.request.identity
        told = {"execution": who.owner, "project": who.project, "domain": who.domain, "stack": who.stack}
        user = content.user
    else:
        told, user = {}, content.user if isinstance(content, Attached | Cleanup) else None
    if user is not None:
        # The one who calls, of a service that belongs to several or to somebody else.
        told |= {"execution": user.execution, "project": user.project, "domain": user.domain}
    return told


def _ended(traced: Span, answer: Any, context: Any) -> Any:
    # flytekit answers a failed call with nothing, and says why in the context.
    if answer is None:
        traced.fail(getattr(context.code(), "name", str(context.code())), context.details() or "")
    return answer


async def _addressed(request: Any, context: Any) -> tuple[Any, Any]:
    """Whom a call is for, and its resource meta."""
    name, version = request.task_category.name or request.task_type, request.task_category.version
    try:
        connector = ConnectorRegistry.get_connector(name, version)
    except FlyteConnectorNotFound:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no connector for task type {name!r}")
    return connector, connector.metadata_type.decode(request.resource_meta)


async def _or_abort(call: Awaitable[Any], context: Any) -> Any:
    try:
        return await call
    except NotImplementedError:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this task type has no answer to this call")
    except UsageError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{error.message}; {error.hint}")
    except ProvisionerError as error:
        log.warning("call failed", reason=error.reason, error=error.message)
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"{error.reason}: {error.message}")


async def _plainly(call: Awaitable[Any], context: Any) -> Any:
    answer = await call
    _, traceback, message = (context.details() or "").rpartition("Message:\n\n")
    if traceback:
        context.set_details(message.strip())
    return answer
