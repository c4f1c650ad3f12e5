"""Carry one call to the agent that serves it, whole and at most as often as is safe.

Used by the gateway (with a caller on the other side) and by the client library
(without). Messages are bytes. What the caller sent along goes along: metadata,
deadline, cancellation; and what the agent answers comes back: metadata, status
and details.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress

import grpc
import grpc.aio

from provisioner.errors import PermanentError
from provisioner.registry.calls import (
    HOP_HEADER,
    Caller,
    CallRefusedError,
    Metadata,
    Sink,
    Tally,
    code_of,
    passed_on,
    retry_delay,
)
from provisioner.registry.channels import ChannelPool
from provisioner.registry.config import Deployment
from provisioner.registry.metrics import Metrics
from provisioner.registry.table import RoutingTable
from provisioner.registry.wire import MalformedRequestError, Method, task_of

CONNECT_WAIT = 5.0
"""Seconds that a call which must not be repeated waits for a connection first."""

_SHORTEST_LIMIT = 0.05


class Forwarder:
    """Finds the agent for a call and carries the call there.

    Args:
        table: Gives the current routing table.
        pool: The channels.
        metrics: What is counted.
        name: This gateway's name, by which calls that come back are known; ""
            for a client.
        connect_wait: Seconds; see `CONNECT_WAIT`.
    """

    def __init__(
        self,
        table: Callable[[], RoutingTable],
        pool: ChannelPool,
        metrics: Metrics,
        *,
        name: str = "",
        connect_wait: float = CONNECT_WAIT,
    ) -> None:
        self._table = table
        self._pool = pool
        self._metrics = metrics
        self._name = name
        self._connect_wait = connect_wait

    def find(self, task_type: str, version: int) -> Deployment:
        """The deployment that serves a task type and version.

        Raises:
            CallRefusedError: Nobody does (NOT_FOUND).
        """
        table = self._table()
        route = table.resolve(task_type, version)
        if route is not None:
            return table.agents[route.agent].deployment
        silent = [name for name, status in table.agents.items() if status.observation.error]
        details = f"no agent serves task type {task_type!r} version {version}, and there is no default agent"
        details += f"; known are: {table.describe_known()}"
        details += f"; not answering: {', '.join(silent)}" if silent else ""
        raise CallRefusedError(grpc.StatusCode.NOT_FOUND, details)

    async def unary(self, method: Method, request: bytes, caller: Caller) -> bytes:
        """One message there, one back.

        Args:
            method: What is called.
            request: The serialised message.
            caller: Who calls.

        Raises:
            CallRefusedError: It cannot be forwarded.
            grpc.aio.AioRpcError: The agent's status is not OK.
        """
        with self._counted(method) as tally:
            task = _task(method, request)
            attempt = 0
            while True:
                deployment = self._next(task, tally)
                try:
                    with self._channel(deployment) as channel:
                        limit = await self._limit(method, deployment, caller, channel)
                        call = channel.unary_unary(method.path)(request, timeout=limit, metadata=self._metadata(caller))
                        response: bytes = await call
                        await caller.sink.initial(passed_on(await call.initial_metadata()))
                        caller.sink.trailing(passed_on(await call.trailing_metadata()))
                        tally.code = grpc.StatusCode.OK
                        return response
                except grpc.aio.AioRpcError as error:
                    await self._pause_or_raise(method, deployment, error, attempt, caller)
                attempt += 1

    async def server_stream(self, method: Method, request: bytes, caller: Caller) -> AsyncGenerator[bytes, None]:
        """One message there, a stream back; repeated only before the first message has come.

        Arguments and errors are those of `unary`.
        """
        with self._counted(method) as tally:
            task = _task(method, request)
            attempt, begun = 0, False
            while tally.code is not grpc.StatusCode.OK:
                deployment = self._next(task, tally)
                try:
                    with self._channel(deployment) as channel:
                        limit = await self._limit(method, deployment, caller, channel)
                        call = channel.unary_stream(method.path)(
                            request, timeout=limit, metadata=self._metadata(caller)
                        )
                        async with aclosing(_relay(call, caller.sink)) as messages:
                            async for message in messages:
                                begun = True
                                yield message
                    tally.code = grpc.StatusCode.OK
                except grpc.aio.AioRpcError as error:
                    if begun:
                        raise
                    await self._pause_or_raise(method, deployment, error, attempt, caller)
                attempt += 1

    async def both_stream(
        self, method: Method, requests: AsyncIterable[bytes], caller: Caller
    ) -> AsyncGenerator[bytes, None]:
        """Streams in both directions at once; the first message decides the way. Never repeated.

        Args:
            method: What is called.
            requests: The serialised messages.
            caller: Who calls.

        Raises:
            CallRefusedError: It cannot be forwarded.
            grpc.aio.AioRpcError: The agent's status is not OK.
        """
        with self._counted(method) as tally:
            stream = aiter(requests)
            first = await anext(stream, None)
            if first is None:
                raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"{method.name}: the stream is empty")
            deployment = self._next(_task(method, first), tally)

            async def all_requests() -> AsyncIterator[bytes]:
                yield first
                async for request in stream:
                    yield request

            with self._channel(deployment) as channel:
                limit = await self._limit(method, deployment, caller, channel)
                call = channel.stream_stream(method.path)(
                    all_requests(), timeout=limit, metadata=self._metadata(caller)
                )
                async with aclosing(_relay(call, caller.sink)) as messages:
                    async for message in messages:
                        yield message
            tally.code = grpc.StatusCode.OK

    def _next(self, task: tuple[str, int], tally: Tally) -> Deployment:
        """The agent for the next attempt, looked up anew: it may have moved meanwhile."""
        deployment = self.find(*task)
        tally.agent = deployment.id
        return deployment

    def _metadata(self, caller: Caller) -> Metadata:
        return (*caller.metadata, (HOP_HEADER, self._name)) if self._name else caller.metadata

    @contextmanager
    def _counted(self, method: Method) -> Iterator[Tally]:
        tally, started = Tally(), time.perf_counter()
        self._metrics.in_flight.inc()
        try:
            yield tally
        except grpc.aio.AioRpcError as error:
            tally.code = error.code()
            raise
        except CallRefusedError as error:
            tally.code = error.code
            raise
        except (asyncio.CancelledError, GeneratorExit):
            tally.code = grpc.StatusCode.CANCELLED
            raise
        finally:
            self._metrics.in_flight.dec()
            self._metrics.requests.labels(tally.agent, method.name, tally.code.name).inc()
            self._metrics.latency.labels(tally.agent, method.name).observe(time.perf_counter() - started)

    @contextmanager
    def _channel(self, deployment: Deployment) -> Iterator[grpc.aio.Channel]:
        try:
            with self._pool.lease(deployment) as channel:
                yield channel
        except PermanentError as error:
            raise CallRefusedError(grpc.StatusCode.FAILED_PRECONDITION, f"agent {deployment.id}: {error}") from error

    async def _pause_or_raise(
        self, method: Method, deployment: Deployment, error: grpc.aio.AioRpcError, attempt: int, caller: Caller
    ) -> None:
        remaining = caller.left_for_retries(deployment.timeout(method.name))
        delay = retry_delay(method, code_of(error), attempt, remaining, random.random())  # noqa: S311
        if delay is None:
            raise error
        self._metrics.retries.labels(deployment.id, method.name).inc()
        await asyncio.sleep(delay)

    async def _limit(
        self, method: Method, deployment: Deployment, caller: Caller, channel: grpc.aio.Channel
    ) -> float | None:
        """Seconds that the call may take, after the wait for a connection where it must not be repeated.

        What has not been sent yet need not be repeated: so a CreateTask
        survives the short absence of an agent that is restarted.
        """
        own = deployment.timeout(method.name)
        ready = grpc.ChannelConnectivity.READY
        if not method.repeatable and (state := channel.get_state(try_to_connect=True)) is not ready:
            left = caller.left(own)
            # When it does not come, the call itself will say what is wrong.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._connect_wait, left if left is not None else self._connect_wait)):
                    while state is not ready:
                        await channel.wait_for_state_change(state)
                        state = channel.get_state(try_to_connect=True)
        limit = caller.left(own)
        return None if limit is None else max(_SHORTEST_LIMIT, limit)


def _task(method: Method, request: bytes) -> tuple[str, int]:
    try:
        return task_of(method.name, request)
    except MalformedRequestError as error:
        raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"{method.name}: {error}") from error


async def _relay(call: grpc.aio.StreamStreamCall, sink: Sink) -> AsyncGenerator[bytes, None]:
    """The messages of a call, its metadata to the sink; cancelled when it is left early."""
    try:
        initial = passed_on(await call.initial_metadata())
        if initial or not call.done():
            await sink.initial(initial)
        async for message in call:
            yield message
        sink.trailing(passed_on(await call.trailing_metadata()))
    finally:
        call.cancel()
