"""How long GetTask takes while creates run: 200 callers at a real server.

Run: python tests/bench/latency_bench.py [--callers 200] [--creates 20] [--workers 20] [--interval 5] [--sandbox bench]

The server is a process of its own, with an engine and a cluster that are real; every create is asked for by
CreateTask, and with as many workers as creates all of them run at once. While any does, each caller polls once in an
interval, all of them evenly spread over it, whatever became of the calls before: a slow answer holds up no other
call. That is 200 executions which wait for their services, polled twice as often as propeller does (10 s).

Then, with no create running, all callers send a call at the same moment, which shows what the server and its callers
can do at most: one process of Python answers some hundreds of calls in a second, and the callers are another one.

The load of the machine is printed first: the figures belong into docs/performance.md only from a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
from flyteidl.admin.agent_pb2 import GetTaskRequest, GetTaskResponse, TaskCategory
from flyteidl.core.execution_pb2 import TaskExecution
from ground import hollow_sandbox, quantiles, template

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import NAMESPACES, Call
from provisioner.demo.caller import Caller, Execution
from provisioner.demo.server import ServerProcess
from provisioner.flyte.task import TASK_TYPE
from provisioner.settings import Settings

METHOD = "/flyteidl.service.AsyncAgentService/GetTask"
CALLERS_PER_CONNECTION = 10
TIMEOUT = 30.0
LIMIT_MS = 100.0
BURSTS = 10
FINAL = (TaskExecution.SUCCEEDED, TaskExecution.FAILED)
RUNNING = (TaskExecution.QUEUED, TaskExecution.INITIALIZING)


@dataclass
class Samples:
    """What was measured.

    Attributes:
        seconds: Of each call while creates ran.
        running: How many creates ran, at each call.
        at_once: Of each call of the bursts.
    """

    seconds: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    at_once: list[float] = field(default_factory=list)


class Callers:
    """Many callers of one server, with a connection for each 10.

    Args:
        address: `host:port` of the server.
        metas: Resource metas of the services that they wait for.
        count: How many callers.
    """

    def __init__(self, address: str, metas: Sequence[bytes], count: int) -> None:
        # A connection of its own for each, and no (de)serializer: what is timed is the server, not its caller.
        options = [("grpc.use_local_subchannel_pool", 1)]
        connections = -(-count // CALLERS_PER_CONNECTION)
        self._channels = [grpc.aio.insecure_channel(address, options) for _ in range(connections)]
        self._polls = [channel.unary_unary(METHOD) for channel in self._channels]
        category = TaskCategory(name=TASK_TYPE)
        self._requests = [GetTaskRequest(resource_meta=m, task_category=category).SerializeToString() for m in metas]
        self._count = count
        self._phases: dict[int, int] = dict.fromkeys(range(len(metas)), TaskExecution.QUEUED)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    @property
    def running(self) -> int:
        return sum(phase in RUNNING for phase in self._phases.values())

    async def _call(self, number: int, which: int, seconds: list[float]) -> None:
        begun = time.perf_counter()
        try:
            answer = await self._polls[number % len(self._polls)](self._requests[which], timeout=TIMEOUT)
        except grpc.aio.AioRpcError:  # it counts with the time after which it was given up
            seconds.append(time.perf_counter() - begun)
            return
        seconds.append(time.perf_counter() - begun)
        self._phases[which] = GetTaskResponse.FromString(answer).resource.phase

    async def burst(self) -> list[float]:
        seconds: list[float] = []
        await asyncio.gather(*(self._call(n, n % len(self._requests), seconds) for n in range(self._count)))
        return seconds

    async def steadily(self, interval: float, samples: Samples) -> None:
        """One call after the other at even distances, until no create runs; none waits for another."""
        calls: set[asyncio.Task[None]] = set()
        begun = time.perf_counter()
        for number in itertools.count():
            await asyncio.sleep(begun + number * interval / self._count - time.perf_counter())
            # Nobody polls what has succeeded.
            waiting = [which for which, phase in self._phases.items() if phase not in FINAL]
            if not self.running:
                break
            samples.running.append(self.running)
            which = waiting[number % len(waiting)]
            calls.add(asyncio.create_task(self._call(number % self._count, which, samples.seconds)))
            for done in [call for call in calls if call.done()]:
                calls.remove(done)
                done.result()
        await asyncio.gather(*calls)


async def measure(address: str, metas: Sequence[bytes], count: int, interval: float) -> Samples:
    """Calls beside creates, and then all at once."""
    callers, samples = Callers(address, metas, count), Samples()
    try:
        await callers.burst()  # connects
        await callers.steadily(interval, samples)
        for _ in range(BURSTS):
            samples.at_once += await callers.burst()
    finally:
        await callers.close()
    return samples


def run(settings: Settings, folder: Path, callers: int, creates: int, interval: float) -> Samples:
    """A server, its creates in a namespace of their own, and the calls beside them."""
    namespace = "bench-latency"
    ClusterClient(settings).transport.json(Call("create", NAMESPACES), body={"metadata": {"name": namespace}})
    server = ServerProcess(settings, folder)
    server.start()
    caller = Caller(server.address)
    try:
        task = template()
        metas = [caller.create(task, Execution(f"bench{number}", namespace)) for number in range(creates)]
        return asyncio.run(measure(server.address, metas, callers, interval))
    finally:
        caller.close()
        server.stop()


def report(samples: Samples) -> bool:
    """Print it; says whether it is within the limit."""
    print(f"creates that ran, on average of the calls: {statistics.mean(samples.running):.1f}")
    print(f"\n{'GetTask':<24}{'p50 ms':>10}{'p99 ms':>10}{'most ms':>10}{'calls':>10}")
    for name, values in (("while creates run", samples.seconds), ("all at once, idle", samples.at_once)):
        figures = (*quantiles(values), 1000 * max(values))
        print(f"{name:<24}" + "".join(f"{figure:>10.1f}" for figure in figures) + f"{len(values):>10}")
    return quantiles(samples.seconds)[1] < LIMIT_MS


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--creates", type=int, default=20)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two calls of one caller")
    parser.add_argument("--sandbox", default="bench", help="a sandbox without a real node, ended afterwards")
    arguments = parser.parse_args()
    with hollow_sandbox(arguments.sandbox) as sandbox, tempfile.TemporaryDirectory(prefix="latency-bench-") as name:
        folder = Path(name)
        settings = Settings(
            kubeconfig=sandbox.kubeconfig,
            context=sandbox.context,
            backend=f"file://{folder / 'backend'}",
            passphrase_file=folder / "passphrase",
            workers=arguments.workers,
        )
        samples = run(settings, folder, arguments.callers, arguments.creates, arguments.interval)
    if not report(samples):
        sys.exit(f"p99 is not under {LIMIT_MS:g} ms")


if __name__ == "__main__":
    main()
