"""100 tasks run through the gateway while agents are added, removed, upgraded, hung, killed and brought back.

Each task is created, asked for again and again, and deleted, as the propeller does: a create that fails is made
anew as another attempt, a get or delete is repeated. None may be lost, none may reach the wrong agent, and no
request to create may arrive twice.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest
from flyteidl.core import execution_pb2
from flyteidl.service import agent_pb2_grpc

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import STATEFULSETS, Call
from provisioner.engine import Engine
from provisioner.identity import LABEL_PROJECT

from .conftest import PATIENCE, SERVICE, create, delete, get, until, write_config

FAILED = {
    execution_pb2.TaskExecution.UNDEFINED,
    execution_pb2.TaskExecution.FAILED,
    execution_pb2.TaskExecution.RETRYABLE_FAILED,
    execution_pb2.TaskExecution.ABORTED,
}
PASSING = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


@dataclass
class Answer:
    """One GetTask that was answered."""

    name: str
    task: str
    version: int
    phase: int
    agent: str
    began: float
    ended: float


@dataclass
class Load:
    """The tasks, and what became of them."""

    stub: agent_pb2_grpc.AsyncAgentServiceStub
    over: asyncio.Event = field(default_factory=asyncio.Event)
    created: Counter = field(default_factory=Counter)
    deleted: Counter = field(default_factory=Counter)
    answers: list[Answer] = field(default_factory=list)

    async def call(self, method, make):
        """Repeat a call until it works; what is not a passing fault is one of the gateway."""
        deadline = time.monotonic() + 5 * PATIENCE
        attempt = 0
        while True:
            try:
                return await method(make(attempt), timeout=PATIENCE)
            except grpc.aio.AioRpcError as error:
                if error.code() not in PASSING or time.monotonic() > deadline:
                    raise
            attempt += 1

    async def task(self, kind, number, begin, end):
        """One task's life: begins when `begin` is set, is asked for until `end` is."""
        await begin.wait()
        key = (kind.type, kind.version)
        name = f"{kind.type}-{kind.version}-{number}"
        meta = await self.call(
            self.stub.CreateTask,
            lambda attempt: create(*key, f"{name}-{attempt}", kind.custom, kind.texts, name, attempt),
        )
        self.created[key] += 1
        last = False
        while not last:
            last = end.is_set()
            began = time.monotonic()
            found = await self.call(self.stub.GetTask, lambda _: get(*key, meta.resource_meta))
            resource = found.resource
            self.answers.append(Answer(name, *key, resource.phase, resource.message, began, time.monotonic()))
            await asyncio.sleep(random.uniform(1, 2))  # noqa: S311 - the propeller's own pace, sped up
        await self.call(self.stub.DeleteTask, lambda _: delete(*key, meta.resource_meta))
        self.deleted[key] += 1

    def succeeded(self, task):
        """Names of the tasks of a type that were seen to have succeeded."""
        done = execution_pb2.TaskExecution.SUCCEEDED
        return {answer.name for answer in self.answers if answer.task == task and answer.phase == done}

    async def held(self, key, order):
        """One GetTask that its agent holds back; returns who answered."""
        answer = await self.stub.GetTask(get(*key, order), timeout=PATIENCE)
        return answer.resource.message


@dataclass(frozen=True)
class Kind:
    """A kind of task: how many, of which type, and what it is given."""

    count: int
    type: str
    version: int = 0
    custom: dict | None = None
    texts: dict | None = None


def deployments(**processes):
    return {name.replace("_", "-"): {"endpoint": item.endpoint, "insecure": True} for name, item in processes.items()}


async def seen(condition, what, patience=4 * PATIENCE):
    return await asyncio.to_thread(until, condition, what, patience)


@pytest.mark.timeout(900)
async def test_no_task_is_lost_or_sent_to_the_wrong_agent(fleet, settings, tmp_path):
    connector, stock = fleet.data_service(settings), fleet.flytekit()
    old = fleet.old_style("old", "--type", "async:legacy", "--type", "sync:prompt")
    leaver = fleet.old_style("leaver", "--type", "async:moving")
    spare = fleet.old_style("spare", "--type", "async:moving")
    versioned = fleet.old_style("versioned", "--category", "async:upgraded:1")
    connector.ready()
    stock.ready()
    block = {
        "pollInterval": "1s",
        "defaultAgent": {
            "endpoint": stock.endpoint,
            "insecure": True,
            "timeouts": {"CreateTask": "100s", "GetTask": "100s", "DeleteTask": "100s"},
            "defaultTimeout": "100s",
        },
        "agents": deployments(data_service=connector, old=old, leaver=leaver, spare=spare, versioned=versioned),
        # flytekit loads both connectors into either server, so that both announce both.
        "agentForTaskTypes": [{"dataservicetask": "data-service"}, {"sensor": "defaultAgent"}],
    }
    config = tmp_path / "agents.yaml"
    gateway = fleet.gateway(write_config(config, block))
    served = {("sensor", 0), ("dataservicetask", 0), ("legacy", 0), ("upgraded", 1)}
    until(lambda: served <= gateway.serves(), "the types there are at first")

    def up(name):
        return gateway.metric("agent_registry_agent_up", agent=name)

    path = tmp_path / "what the sensor waits for"
    sensor = {"sensor_module": "flytekit.sensor.file_sensor", "sensor_name": "FileSensor"}
    kinds = {
        "legacy": Kind(35, "legacy"),
        # Each is a stack of its own.
        "service": Kind(5, "dataservicetask", custom=SERVICE.custom()),
        "sensor": Kind(15, "sensor", custom=sensor, texts={"path": str(path)}),
        "moving": Kind(15, "moving"),
        "first": Kind(10, "upgraded", 1),
        "second": Kind(10, "upgraded", 2),
        "extra": Kind(10, "extra"),
    }
    assert sum(kind.count for kind in kinds.values()) == 100

    async with grpc.aio.insecure_channel(gateway.endpoint) as channel:
        load = Load(agent_pb2_grpc.AsyncAgentServiceStub(channel))
        now, first_over, second_served, extra_served = (asyncio.Event() for _ in range(4))
        now.set()
        begins = {"second": second_served, "extra": extra_served}
        ends = {"first": first_over}
        async with asyncio.TaskGroup() as group:
            for name, kind in kinds.items():
                for number in range(kind.count):
                    group.create_task(load.task(kind, number, begins.get(name, now), ends.get(name, load.over)))
            await seen(lambda: sum(load.created.values()) == 80, "the first 80 tasks are created")

            # Killed and brought back.
            old.kill()
            await seen(lambda: up("old") == 0, "the gateway knows that the killed agent is away")
            assert ("legacy", 0) in await asyncio.to_thread(gateway.serves)
            old.start()
            await seen(lambda: up("old") == 1, "the killed agent is back")

            # Hung, and let go again. An agent that is silent from the first has no entries that could be stale, and
            # this one, which makes five stacks at the moment, is often slower than a round waits.
            await seen(lambda: up("data-service") == 1, "the agent has answered")
            connector.signal(signal.SIGSTOP)
            await seen(lambda: gateway.metric("agent_registry_agent_stale", agent="data-service") == 1, "it hangs")
            connector.signal(signal.SIGCONT)
            await seen(lambda: up("data-service") == 1, "the hung agent answers again")

            # Added.
            added = await asyncio.to_thread(fleet.old_style, "added", "--type", "async:extra")
            block["agents"] |= deployments(added=added)
            write_config(config, block)
            await seen(lambda: ("extra", 0) in gateway.serves(), "the added agent is served")
            extra_served.set()

            # Upgraded: another version of its type, and no longer the one before.
            first_over.set()
            await seen(lambda: load.deleted["upgraded", 1] == 10, "the tasks of the first version have ended")
            versioned.kill()
            versioned.command[-1] = "async:upgraded:2"
            versioned.start()
            await seen(
                lambda: {item for item in gateway.serves() if item[0] == "upgraded"} == {("upgraded", 2)}, "version 2"
            )
            second_served.set()

            # Removed, with a call on it still running; another one has announced its type all the time.
            gate = tmp_path / "gate"
            held = asyncio.create_task(load.held(("moving", 0), f"wait:{gate}".encode()))
            await seen(lambda: any(item["order"] == f"wait:{gate}" for item in leaver.events()), "the call arrived")
            removed = time.monotonic()
            del block["agents"]["leaver"]
            write_config(config, block)
            await seen(lambda: up("leaver") is None, "the removed agent is gone from the table")
            gone = time.monotonic()
            gate.touch()
            assert await held == "leaver"
            await seen(
                lambda: any(a.task == "moving" and a.agent == "spare" for a in load.answers), "the other one took over"
            )
            leaver.kill()

            # The default agent is killed and brought back, and then what the sensor waits for comes true.
            stock.kill()
            await seen(lambda: up("defaultAgent") == 0, "the default agent is away")
            stock.start()
            await seen(lambda: up("defaultAgent") == 1, "the default agent is back")
            path.touch()
            await seen(lambda: load.succeeded("sensor"), "the sensor fires")
            await seen(lambda: sum(load.created.values()) == 100, "all 100 tasks are created")
            await seen(
                lambda: len(load.succeeded("dataservicetask")) == kinds["service"].count, "all services are ready"
            )
            load.over.set()

    wanted = {(kind.type, kind.version): kind.count for kind in kinds.values()}
    assert load.created == wanted
    assert load.deleted == wanted
    assert not [answer for answer in load.answers if answer.phase in FAILED]
    for agent, name in (("defaultAgent", "sensor"), ("data-service", "service")):
        created = gateway.count("agent_gateway_requests_total", agent=agent, method="CreateTask", code="OK")
        assert created == kinds[name].count
    # The services were this connector's, and it has removed them.
    await seen(lambda: not list(Engine(settings).state.stacks()), "no stack is left")
    transport, call = ClusterClient(settings).transport, Call("list", STATEFULSETS, "default")
    of_these = {"labelSelector": f"{LABEL_PROJECT}=p"}
    await seen(lambda: not transport.json(call, query=of_these)["items"], "no object is left")

    # Each answer came from the agent that serves the type, at the time.
    names = {"legacy": {"old"}, "upgraded": {"versioned"}, "extra": {"added"}, "moving": {"leaver", "spare"}}
    for answer in load.answers:
        if answer.task in names:
            assert answer.agent in names[answer.task], answer
        if answer.agent == "leaver":
            assert answer.began < gone, answer
        if answer.agent == "spare":
            assert answer.ended > removed, answer

    # Each agent saw its own types alone, and each request to create once.
    types = {
        "old": {"legacy"},
        "leaver": {"moving"},
        "spare": {"moving"},
        "versioned": {"upgraded"},
        "added": {"extra"},
    }
    creates = Counter()
    for process in (old, leaver, spare, versioned, added):
        events = [event for event in process.events() if "order" in event]
        assert {event["type"] for event in events} == types[events[0]["agent"]]
        creates.update(event["order"] for event in events if event["method"] == "CreateTask")
    assert set(creates.values()) == {1}
    assert len({name.rsplit("-", 1)[0] for name in creates}) == 80
