"""The three agent services on one port: receives calls and hands them to the `Forwarder`.

ListAgents and GetAgent are answered from the table. Everything else goes to an
agent, as bytes. A call that has passed this gateway before is refused: a
configuration that names the gateway as its own agent (the propeller's, handed
over unchanged) would otherwise go round for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, NoReturn

import grpc
import grpc.aio
from flyteidl.admin import agent_pb2

from provisioner.registry.ask import LOOP_TRAILER
from provisioner.registry.calls import HOP_HEADER, Caller, CallRefusedError, Metadata, passed_on
from provisioner.registry.forward import Forwarder
from provisioner.registry.table import Announced, Mode, RoutingTable
from provisioner.registry.wire import FORWARDED, METADATA_SERVICE, Method, Shape

_Context = Any  # grpc.aio.ServicerContext of bytes; grpc has no types of its own


class _ContextSink:
    """Passes an agent's metadata to the caller, the initial one once."""

    def __init__(self, context: _Context) -> None:
        self._context = context
        self._sent = False

    async def initial(self, metadata: Metadata) -> None:
        if not self._sent:
            self._sent = True
            await self._context.send_initial_metadata(metadata)

    def trailing(self, metadata: Metadata) -> None:
        self._context.set_trailing_metadata(metadata)


def agent_message(announced: Announced) -> agent_pb2.Agent:
    """An `Agent` of flyteidl, with the older plain names filled in too, as flytekit does."""
    return agent_pb2.Agent(
        name=announced.name,
        is_sync=announced.mode is Mode.SYNC,
        supported_task_types=list(dict.fromkeys(name for name, _ in announced.categories)),
        supported_task_categories=[
            agent_pb2.TaskCategory(name=name, version=version) for name, version in announced.categories
        ],
    )


class Gateway(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Handlers of all methods, for `server.add_generic_rpc_handlers`.

    Args:
        forwarder: Carries calls to agents.
        table: Gives the current routing table.
        name: This gateway's name.
    """

    def __init__(self, forwarder: Forwarder, table: Callable[[], RoutingTable], *, name: str) -> None:
        self._forwarder = forwarder
        self._table = table
        self._name = name
        self._opened = asyncio.Event()
        self.active = 0
        """Calls that are being forwarded now."""
        self._called = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._handlers = {method.path: self._handler(method) for method in FORWARDED.values()}
        self._handlers[f"/{METADATA_SERVICE}/ListAgents"] = grpc.unary_unary_rpc_method_handler(
            self._list_agents,
            request_deserializer=agent_pb2.ListAgentsRequest.FromString,
            response_serializer=agent_pb2.ListAgentsResponse.SerializeToString,
        )
        self._handlers[f"/{METADATA_SERVICE}/GetAgent"] = grpc.unary_unary_rpc_method_handler(
            self._get_agent,
            request_deserializer=agent_pb2.GetAgentRequest.FromString,
            response_serializer=agent_pb2.GetAgentResponse.SerializeToString,
        )

    def open(self) -> None:
        """Let calls through, once there is a table; until then they wait, so that no type is unknown too early."""
        self._opened.set()

    async def wait_quiet(self, seconds: float) -> None:
        """Wait until no call has been running for a while.

        Args:
            seconds: How long a while is.
        """
        while True:
            await self._idle.wait()
            self._called.clear()
            try:
                await asyncio.wait_for(self._called.wait(), seconds)
            except TimeoutError:
                return

    @contextmanager
    def _running(self) -> Iterator[None]:
        self.active += 1
        self._called.set()
        self._idle.clear()
        try:
            yield
        finally:
            self.active -= 1
            if self.active == 0:
                self._idle.set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of a path, or None when it is not ours; called by gRPC."""
        return self._handlers.get(handler_call_details.method)

    def _handler(self, method: Method) -> grpc.RpcMethodHandler:
        async def unary(request: bytes, context: _Context) -> bytes:
            with self._running():
                caller = await self._caller(context)
                return await _answered(self._forwarder.unary(method, request, caller), context)

        async def server_stream(request: bytes, context: _Context) -> AsyncIterator[bytes]:
            with self._running():
                caller = await self._caller(context)
                async for message in _streamed(self._forwarder.server_stream(method, request, caller), context):
                    yield message

        async def both_stream(requests: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
            with self._running():
                caller = await self._caller(context)
                async for message in _streamed(self._forwarder.both_stream(method, requests, caller), context):
                    yield message

        if method.shape is Shape.UNARY:
            return grpc.unary_unary_rpc_method_handler(unary)
        if method.shape is Shape.SERVER_STREAM:
            return grpc.unary_stream_rpc_method_handler(server_stream)
        return grpc.stream_stream_rpc_method_handler(both_stream)

    async def _caller(self, context: _Context) -> Caller:
        """Who calls; refuses a call that has been here before."""
        metadata = passed_on(context.invocation_metadata())
        if (HOP_HEADER, self._name) in metadata:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the call came back to gateway {self._name!r}: an agent of its configuration is, or leads to, the "
                "gateway itself; remove that endpoint, or give chained gateways different names (--name)",
                ((LOOP_TRAILER, self._name),),
            )
        await self._opened.wait()
        return Caller(metadata, context.time_remaining(), _ContextSink(context))

    async def _list_agents(
        self, _request: agent_pb2.ListAgentsRequest, context: _Context
    ) -> agent_pb2.ListAgentsResponse:
        await self._caller(context)
        context.set_trailing_metadata(((HOP_HEADER, self._name),))
        return agent_pb2.ListAgentsResponse(agents=[agent_message(item) for item in self._table().union])

    async def _get_agent(self, request: agent_pb2.GetAgentRequest, context: _Context) -> agent_pb2.GetAgentResponse:
        await self._caller(context)
        union = self._table().union
        found = [item for item in union if item.name == request.name]
        if not found:
            known = ", ".join(item.name for item in union) or "none"
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no agent is called {request.name!r}; known are: {known}")
        return agent_pb2.GetAgentResponse(agent=agent_message(found[0]))


async def _answered(answer: Awaitable[bytes], context: _Context) -> bytes:
    try:
        return await answer
    except (grpc.aio.AioRpcError, CallRefusedError) as error:
        await _abort(error, context)


async def _streamed(messages: Any, context: _Context) -> AsyncIterator[bytes]:
    try:
        async with aclosing(messages):
            async for message in messages:
                yield message
    except (grpc.aio.AioRpcError, CallRefusedError) as error:
        await _abort(error, context)


async def _abort(error: grpc.aio.AioRpcError | CallRefusedError, context: _Context) -> NoReturn:
    """End the call with the agent's own status, details and trailing metadata."""
    if isinstance(error, CallRefusedError):
        await context.abort(error.code, error.details)
    else:
        trailing = tuple(error.trailing_metadata() or ())
        await context.abort(error.code(), error.details() or "", trailing)
    raise AssertionError("abort does not return")
