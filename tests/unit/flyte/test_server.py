"""The server's life: ports, health, and an end in the right order. Control is a value here, gRPC is real."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import grpc
import httpx
import pytest
from flyteidl.admin.agent_pb2 import (
    CreateTaskRequest,
    DeleteTaskRequest,
    GetTaskLogsRequest,
    GetTaskMetricsRequest,
    GetTaskRequest,
    ListAgentsRequest,
    TaskCategory,
)
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service.agent_pb2_grpc import AgentMetadataServiceStub, AsyncAgentServiceStub
from flytekit.extend.backend.base_connector import ConnectorRegistry
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from provisioner.errors import PermanentError, UsageError
from provisioner.flyte.connector import DataServiceConnector
from provisioner.flyte.runtime import Runtime
from provisioner.flyte.server import Server
from provisioner.settings import Settings

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
OURS = TaskCategory(name="dataservicetask")


@contextmanager
def registered(connector: DataServiceConnector) -> Iterator[None]:
    """The connector that answers our task type meanwhile."""
    usual = ConnectorRegistry.get_connector(OURS.name)
    ConnectorRegistry._REGISTRY[usual.task_category] = connector
    yield
    ConnectorRegistry._REGISTRY[usual.task_category] = usual


@pytest.fixture
def local_settings() -> Settings:
    return Settings(host="127.0.0.1", port=0, metrics_port=0, drain_timeout=20, cancel_grace=1)


class Running:
    def __init__(self, server: Server, port: int, metrics_port: int) -> None:
        self.port = port
        self.metrics_port = metrics_port
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.task = asyncio.create_task(server.run())

    async def health(self, service: str = "") -> AsyncIterator[int]:
        async for answer in HealthStub(self.channel).Watch(HealthCheckRequest(service=service)):
            yield answer.status


@pytest.fixture
async def start(local_settings):
    running: list[Running] = []

    async def begin(runtime: Runtime) -> Running:
        server = Server(local_settings, runtime)
        addresses = await server.start()
        running.append(Running(server, addresses.port, addresses.metrics_port))
        return running[-1]

    yield begin
    for item in running:
        if not item.task.done():
            os.kill(os.getpid(), signal.SIGTERM)
            await item.task
        await item.channel.close()


async def test_health_follows_control(start, control, runtime) -> None:
    control.is_ready = False
    server = await start(runtime)
    seen = server.health("flyteidl.service.AsyncAgentService")
    assert await anext(seen) == NOT_SERVING
    control.is_ready = True
    assert await anext(seen) == SERVING
    control.is_ready = False
    assert await anext(seen) == NOT_SERVING


async def test_it_answers_what_flyte_asks_first_and_shows_its_metrics(start, runtime) -> None:
    server = await start(runtime)
    agents = await AgentMetadataServiceStub(server.channel).ListAgents(ListAgentsRequest())
    assert "dataservicetask" in {item.name for agent in agents.agents for item in agent.supported_task_categories}
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60)).text
    assert "flyte_connector_requests_success_total" in text


async def test_an_error_tells_its_cause_without_a_traceback(start, runtime) -> None:
    server = await start(runtime)
    request = DeleteTaskRequest(resource_meta=b'{"v":9}', task_category=TaskCategory(name="dataservicetask"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await AsyncAgentServiceStub(server.channel).DeleteTask(request)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details() == "TransientError: resource meta of version 9; this server reads up to version 1."


async def test_logs_come_as_a_token_and_a_page(start, control, runtime, connector, template, execution) -> None:
    server = await start(runtime)
    ours = DataServiceConnector(runtime)
    meta = ours.create(template, task_execution_metadata=execution()).encode()
    stub = AsyncAgentServiceStub(server.channel)
    with registered(ours):
        request = GetTaskLogsRequest(resource_meta=meta, task_category=OURS, lines=7)
        header, body = [answer async for answer in stub.GetTaskLogs(request)]
        assert body.body.results[0].endswith("-0 | hello")
        assert body.body.structured_lines[0].timestamp.seconds == 1778310000
        again = GetTaskLogsRequest(resource_meta=meta, task_category=OURS, token=header.header.token)
        assert [answer async for answer in stub.GetTaskLogs(again)]
        assert control.calls[-1][1].endswith(header.header.token)
        wrong = GetTaskLogsRequest(resource_meta=meta, task_category=OURS, token="x")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            [answer async for answer in stub.GetTaskLogs(wrong)]
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        metrics = await stub.GetTaskMetrics(
            GetTaskMetricsRequest(resource_meta=meta, task_category=OURS, queries=["replicas"])
        )
        assert [result.metric for result in metrics.results] == ["replicas"]


async def test_a_call_for_another_task_type_says_so(start, runtime) -> None:
    server = await start(runtime)
    stub = AsyncAgentServiceStub(server.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetTaskMetrics(GetTaskMetricsRequest(task_category=TaskCategory(name="spark")))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "spark" in caught.value.details()


async def test_slow_creates_leave_threads_for_polls(start, control, runtime, template, execution) -> None:
    server = await start(runtime)
    ours = DataServiceConnector(runtime)
    meta = ours.create(template, task_execution_metadata=execution()).encode()
    stub = AsyncAgentServiceStub(server.channel)
    begun, may_end = threading.Semaphore(0), threading.Event()
    ensure = control.ensure

    def slow(request):
        begun.release()
        may_end.wait(60)
        return ensure(request)

    control.ensure = slow
    with registered(ours):
        requests = [
            CreateTaskRequest(
                template=template.to_flyte_idl(), task_execution_metadata=execution(name=f"e{index}").to_flyte_idl()
            )
            for index in range(40)
        ]
        creates = [asyncio.ensure_future(stub.CreateTask(request)) for request in requests]
        try:
            for _ in range(8):
                assert await asyncio.to_thread(begun.acquire, timeout=60)
            answer = await stub.GetTask(GetTaskRequest(resource_meta=meta, task_category=OURS))
            assert answer.resource.phase == TaskExecution.QUEUED
            assert not any(create.done() for create in creates)
        finally:
            may_end.set()
        await asyncio.gather(*creates)


async def test_a_signal_turns_health_first_then_drains_then_closes(start, control, runtime) -> None:
    draining, may_end = threading.Event(), threading.Event()

    def drain(timeout: float) -> bool:
        draining.set()
        return may_end.wait(timeout)

    control.stop_waits = drain
    # Not before somebody looks.
    control.is_ready = False
    server = await start(runtime)
    seen = server.health()
    assert await anext(seen) == NOT_SERVING
    control.is_ready = True
    assert await anext(seen) == SERVING
    os.kill(os.getpid(), signal.SIGTERM)
    assert await anext(seen) == NOT_SERVING
    await asyncio.to_thread(draining.wait, 10)
    # While it drains it still answers.
    await AgentMetadataServiceStub(server.channel).ListAgents(ListAgentsRequest())
    assert not server.task.done()
    may_end.set()
    assert await server.task is True
    assert control.stops == [20]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port))


async def test_a_second_signal_cancels_what_runs(start, control, runtime) -> None:
    first, cancelled = threading.Event(), threading.Event()

    def drain(timeout: float) -> bool:
        if timeout == 20:
            first.set()
            return cancelled.wait(timeout)
        cancelled.set()
        return True

    control.stop_waits = drain
    server = await start(runtime)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.to_thread(first.wait, 10)
    os.kill(os.getpid(), signal.SIGINT)
    assert await server.task is True
    assert control.stops == [20, 1]


async def test_it_says_when_something_still_ran_at_the_end(start, control, runtime) -> None:
    control.stop_waits = lambda _: False
    server = await start(runtime)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await server.task is False


async def test_a_port_in_use_is_named(start, runtime, local_settings) -> None:
    server = await start(runtime)
    taken = local_settings.model_copy(update={"port": server.port})
    with pytest.raises(PermanentError, match=f"port {server.port} on 127.0.0.1") as caught:
        await Server(taken, runtime).start()
    assert "PROVISIONER_PORT" in caught.value.hint
    metrics = local_settings.model_copy(update={"metrics_port": server.metrics_port})
    with pytest.raises(PermanentError, match=f"metrics port {server.metrics_port}.*already in use") as caught:
        await Server(metrics, runtime).start()
    assert "PROVISIONER_METRICS_PORT" in caught.value.hint


async def test_control_that_cannot_start_ends_the_server_with_its_error(start) -> None:
    def broken() -> None:
        raise UsageError("no such context: nowhere")

    server = await start(Runtime(broken))
    with pytest.raises(UsageError, match="nowhere"):
        await server.task


def test_control_is_made_once_whoever_asks(control) -> None:
    made = []
    runtime = Runtime(lambda: made.append(control) or control)
    assert not runtime.ready()
    threads = [threading.Thread(target=runtime.control) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert control.started == 1
    assert runtime.stop(3)
    assert runtime.control() is control
    assert not runtime.ready()
