"""What the gateway costs: the same calls to the same agent, directly and through it, in turn.

Run: python tests/bench/registry_bench.py [--seconds 5] [--calls 1500]

Agent, gateway and caller are three processes on this machine, so that on two cores the requests per second are
limited by all three together. Latency is measured one call at a time, direct and through the gateway alternating,
so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
from flyteidl.admin import agent_pb2
from flyteidl.core import execution_pb2, tasks_pb2
from flyteidl.service import agent_pb2_grpc

TASK_TYPE = "bench"
CONCURRENCY = 32
Call = Callable[[], Awaitable[object]]


class Agent(agent_pb2_grpc.AsyncAgentServiceServicer, agent_pb2_grpc.AgentMetadataServiceServicer):
    """The least that an agent can do."""

    _meta = agent_pb2.CreateTaskResponse(resource_meta=b"m" * 200)
    _state = agent_pb2.GetTaskResponse(resource=agent_pb2.Resource(phase=execution_pb2.TaskExecution.RUNNING))

    async def CreateTask(self, _request: object, _context: object) -> agent_pb2.CreateTaskResponse:
        return self._meta

    async def GetTask(self, _request: object, _context: object) -> agent_pb2.GetTaskResponse:
        return self._state

    async def ListAgents(self, _request: object, _context: object) -> agent_pb2.ListAgentsResponse:
        agent = agent_pb2.Agent(name="bench", supported_task_types=[TASK_TYPE])
        return agent_pb2.ListAgentsResponse(agents=[agent])


async def serve_agent(port: int) -> None:
    server = grpc.aio.server()
    agent_pb2_grpc.add_AsyncAgentServiceServicer_to_server(Agent(), server)
    agent_pb2_grpc.add_AgentMetadataServiceServicer_to_server(Agent(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def answers(endpoint: str) -> None:
    deadline = time.monotonic() + 60
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = agent_pb2_grpc.AgentMetadataServiceStub(channel)
        while True:
            try:
                if (await stub.ListAgents(agent_pb2.ListAgentsRequest(), timeout=2)).agents:
                    return
            except grpc.aio.AioRpcError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.1)


async def timed(call: Call) -> float:
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


async def latencies(direct: Call, through: Call, calls: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each call, alternating."""
    for _ in range(50):
        await direct()
        await through()
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(calls):
        found[0].append(await timed(direct))
        found[1].append(await timed(through))
    return found


async def rate(call: Call, seconds: float) -> float:
    """Calls per second with many at once."""
    count, until = 0, time.perf_counter() + seconds

    async def caller() -> None:
        nonlocal count
        while time.perf_counter() < until:
            await call()
            count += 1

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CONCURRENCY)))
    return count / (time.perf_counter() - started)


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


def calls_of(stub: agent_pb2_grpc.AsyncAgentServiceStub) -> dict[str, Call]:
    get = agent_pb2.GetTaskRequest(
        task_category=agent_pb2.TaskCategory(name=TASK_TYPE), resource_meta=b"m" * 200, task_type=TASK_TYPE
    )
    create = agent_pb2.CreateTaskRequest(template=tasks_pb2.TaskTemplate(type=TASK_TYPE), output_prefix="s3://x/y")
    large = agent_pb2.CreateTaskRequest()
    large.CopyFrom(create)
    large.inputs.literals["x"].scalar.binary.value = os.urandom(1_000_000)
    return {
        "GetTask": lambda: stub.GetTask(get, timeout=30),
        "CreateTask": lambda: stub.CreateTask(create, timeout=30),
        "CreateTask, 1 MB of inputs": lambda: stub.CreateTask(large, timeout=30),
    }


async def measure(options: argparse.Namespace, agent: str, gateway: str) -> None:
    await answers(agent)
    await answers(gateway)
    async with grpc.aio.insecure_channel(agent) as straight, grpc.aio.insecure_channel(gateway) as around:
        direct = calls_of(agent_pb2_grpc.AsyncAgentServiceStub(straight))
        through = calls_of(agent_pb2_grpc.AsyncAgentServiceStub(around))
        print(f"{'one call at a time, ms':<28}{'direct p50':>12}{'gateway p50':>13}{'added p50':>11}{'added p99':>11}")
        for name in direct:
            calls = options.calls if "MB" not in name else max(50, options.calls // 10)
            a, b = await latencies(direct[name], through[name], calls)
            row = [statistics.median(a), statistics.median(b), statistics.median(b) - statistics.median(a)]
            row.append(percentile(b, 99) - percentile(a, 99))
            print(f"{name:<28}{row[0]:>12.2f}{row[1]:>13.2f}{row[2]:>11.2f}{row[3]:>11.2f}")
        print()
        print(f"{f'{CONCURRENCY} calls at a time, per second':<28}{'direct':>12}{'gateway':>13}{'ratio':>11}")
        for name in ("GetTask", "CreateTask"):
            straight_rate, around_rate = (
                await rate(direct[name], options.seconds),
                await rate(through[name], options.seconds),
            )
            print(f"{name:<28}{straight_rate:>12.0f}{around_rate:>13.0f}{around_rate / straight_rate:>11.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of calls per second")
    parser.add_argument("--calls", type=int, default=1500, help="of each measurement of latency")
    parser.add_argument("--agent", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        asyncio.run(serve_agent(options.agent))
        return
    ports = free_port(), free_port()
    processes = [subprocess.Popen([sys.executable, __file__, "--agent", str(ports[0])])]
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "agents.yaml"
            config.write_text(
                f"agent-service: {{agents: {{bench: {{endpoint: '127.0.0.1:{ports[0]}', insecure: true}}}}}}"
            )
            command = [sys.executable, "-m", "provisioner", "gateway", "--config", str(config), "--host", "127.0.0.1"]
            command += ["--port", str(ports[1]), "--metrics-port", "0"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            processes.append(subprocess.Popen(command, **quiet))
            asyncio.run(measure(options, f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"))
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
