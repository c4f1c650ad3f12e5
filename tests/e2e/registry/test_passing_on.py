"""What goes through the gateway arrives whole, and at most as often as is safe."""

import asyncio

import grpc
import grpc.aio
import pytest
from flyteidl.admin import agent_pb2
from flyteidl.core import literals_pb2
from flyteidl.service import agent_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from .conftest import CALL, PATIENCE, category, create, delete, get, template, until, write_config


@pytest.fixture(scope="module")
def served(module_fleet):
    agent = module_fleet.old_style("old", "--type", "async:legacy", "--type", "sync:prompt")
    config = write_config(
        module_fleet.folder / "agents.yaml",
        {
            "agents": {
                "old": {
                    "endpoint": agent.endpoint,
                    "insecure": True,
                    "defaultTimeout": "60s",
                    "timeouts": {"DeleteTask": "30s"},
                }
            }
        },
    )
    # An agent that is started again is waited for, however long a busy machine takes for that.
    return module_fleet.gateway(config, "--connect-wait", "60s"), agent


@pytest.fixture
def pair(served):
    """A gateway and the one agent behind it, both up, the agent's journal empty."""
    gateway, agent = served
    if agent.running is None:
        agent.start()
    agent.ready().forget()
    return gateway, agent


def test_messages_metadata_and_deadline_arrive(pair):
    gateway, agent = pair
    before = gateway.count("agent_gateway_requests_total", agent="old", method="GetTask", code="OK")
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        answer, call = stub.CreateTask.with_call(
            create("legacy"), timeout=20, metadata=(("x-trace", "t1"), ("x-bytes-bin", b"\x01\x00"))
        )
        assert answer.resource_meta == b"task"
        assert ("x-initial", "old") in [tuple(item) for item in call.initial_metadata()]
        trailing = [tuple(item) for item in call.trailing_metadata()]
        assert ("x-trailing", "CreateTask") in trailing
        assert ("x-blob-bin", b"\x00\xff") in trailing
        assert stub.GetTask(get("legacy")).resource.message == "old"
        assert stub.GetTask(agent_pb2.GetTaskRequest(task_type="legacy")).resource.message == "old"
        stub.DeleteTask(delete("legacy"))
        stub.GetTaskMetrics(agent_pb2.GetTaskMetricsRequest(task_category=category("legacy")))
    events = agent.events()
    assert [event["method"] for event in events] == ["CreateTask", "GetTask", "GetTask", "DeleteTask", "GetTaskMetrics"]
    assert events[0]["metadata"]["x-trace"] == "t1"
    assert 0 < events[0]["left"] < 21  # the caller's own deadline is the shorter
    assert 30 < events[1]["left"] < 61  # defaultTimeout
    assert 0 < events[3]["left"] < 31  # timeouts.DeleteTask
    assert gateway.count("agent_gateway_requests_total", agent="old", method="GetTask", code="OK") == before + 2


def test_an_error_comes_back_with_all_that_belongs_to_it(pair):
    gateway, _ = pair
    with gateway.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy", order=b"fail"))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details() == "no such luck"
    trailing = [tuple(item) for item in caught.value.trailing_metadata()]
    assert ("x-reason", "luck") in trailing
    assert ("grpc-status-details-bin", b"\x08\x09") in trailing


def test_unavailable_is_repeated_for_get_and_never_for_create(pair):
    gateway, agent = pair
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.CreateTask(create("legacy", order="unavailable"), timeout=CALL)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "old is busy"
        repeated = stub.GetTask.future(get("legacy", order=b"unavailable"), timeout=PATIENCE)
        until(lambda: [event["method"] for event in agent.events()].count("GetTask") >= 3, "it is repeated")
        assert not repeated.done()
        cancelled = {"agent": "old", "method": "GetTask", "code": "CANCELLED"}
        before = gateway.count("agent_gateway_requests_total", **cancelled)
        repeated.cancel()
        # Not counted later, in the middle of a test that counts.
        until(lambda: gateway.count("agent_gateway_requests_total", **cancelled) == before + 1, "it is over")
    assert [event["method"] for event in agent.events()].count("CreateTask") == 1
    assert gateway.metric("agent_gateway_retries_total", agent="old", method="GetTask") >= 2
    assert gateway.metric("agent_gateway_retries_total", agent="old", method="CreateTask") is None


def test_a_get_outlasts_the_absence_of_its_agent(pair):
    gateway, agent = pair
    before = gateway.count("agent_gateway_retries_total", agent="old", method="GetTask")
    agent.kill()
    with gateway.channel() as channel:
        waiting = agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask.future(get("legacy"), timeout=PATIENCE)
        until(lambda: gateway.count("agent_gateway_retries_total", agent="old", method="GetTask") > before, "a retry")
        agent.start()
        assert waiting.result(timeout=PATIENCE).resource.message == "old"


def test_a_create_waits_for_a_connection_and_is_sent_once(pair):
    gateway, agent = pair
    agent.kill()
    with gateway.channel() as channel:
        waiting = agent_pb2_grpc.AsyncAgentServiceStub(channel).CreateTask.future(create("legacy"), timeout=PATIENCE)
        until(lambda: gateway.metric("agent_gateway_requests_in_flight") == 1, "the call arrived")
        agent.start()
        assert waiting.result(timeout=PATIENCE).resource_meta == b"task"
    assert len(agent.events()) == 1


def test_the_agents_own_timeout_ends_a_call(fleet, tmp_path):
    agent = fleet.old_style("old", "--type", "async:legacy")
    entry = {"endpoint": agent.endpoint, "insecure": True, "timeouts": {"DeleteTask": "500ms"}}
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", {"agents": {"old": entry}}))
    order = f"wait:{tmp_path / 'never'}".encode()

    def cancelled_at_the_agent():
        with gateway.channel() as channel, pytest.raises(grpc.RpcError) as caught:
            agent_pb2_grpc.AsyncAgentServiceStub(channel).DeleteTask(delete("legacy", order=order), timeout=PATIENCE)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return any(event.get("cancelled") for event in agent.events())

    # So short a call may be over before a busy agent has seen it, so the next one shows it.
    until(cancelled_at_the_agent, "the agent's own call was cancelled")


@pytest.mark.parametrize("method", ["GetTask", "GetTaskLogs"])
def test_cancelling_reaches_the_agent(pair, tmp_path, method):
    gateway, agent = pair
    before = gateway.count("agent_gateway_requests_total", method=method, code="CANCELLED")
    order = f"wait:{tmp_path / 'never'}".encode()
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        if method == "GetTask":
            call = stub.GetTask.future(get("legacy", order=order))
        else:
            call = stub.GetTaskLogs(agent_pb2.GetTaskLogsRequest(task_category=category("legacy"), resource_meta=order))
            assert next(iter(call)).header.token == "first"
        until(agent.events, "the call arrived")
        call.cancel()
        until(lambda: any(event.get("cancelled") for event in agent.events()), "the agent's call was cancelled")
    until(
        lambda: gateway.count("agent_gateway_requests_total", method=method, code="CANCELLED") == before + 1,
        "it is counted",
    )
    assert gateway.metric("agent_gateway_requests_in_flight") == 0


def test_logs_are_streamed(pair):
    gateway, _ = pair
    with gateway.channel() as channel:
        request = agent_pb2.GetTaskLogsRequest(task_category=category("legacy"), lines=500)
        stream = agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTaskLogs(request)
        messages = list(stream)
        assert messages[0].header.token == "first"
        assert [message.body.results[0] for message in messages[1:]] == [f"line {number}" for number in range(500)]
        assert ("x-trailing", "GetTaskLogs") in [tuple(item) for item in stream.trailing_metadata()]


async def test_a_sync_task_streams_both_ways_at_once(pair):
    gateway, agent = pair
    async with grpc.aio.insecure_channel(gateway.endpoint) as channel:
        call = agent_pb2_grpc.SyncAgentServiceStub(channel).ExecuteTaskSync(timeout=PATIENCE)
        header = agent_pb2.CreateRequestHeader(template=template("prompt", 0))
        await call.write(agent_pb2.ExecuteTaskSyncRequest(header=header))
        assert (await call.read()).header.resource.message == "old"
        for number in range(50):  # each answer is read before the next input is sent
            literal = literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=literals_pb2.Primitive(integer=number)))
            await call.write(agent_pb2.ExecuteTaskSyncRequest(inputs=literals_pb2.LiteralMap(literals={"n": literal})))
            assert (await call.read()).outputs.literals["n"].scalar.primitive.integer == number
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    assert [event["method"] for event in agent.events()] == ["ExecuteTaskSync"]


async def test_a_sync_task_is_cancelled_at_the_agent(pair, tmp_path):
    gateway, agent = pair
    async with grpc.aio.insecure_channel(gateway.endpoint) as channel:
        call = agent_pb2_grpc.SyncAgentServiceStub(channel).ExecuteTaskSync(timeout=PATIENCE)
        header = agent_pb2.CreateRequestHeader(template=template("prompt"), output_prefix=f"wait:{tmp_path / 'never'}")
        await call.write(agent_pb2.ExecuteTaskSyncRequest(header=header))
        await asyncio.to_thread(until, agent.events, "the call arrived")
        call.cancel()
        await asyncio.to_thread(
            until, lambda: any(event.get("cancelled") for event in agent.events()), "the agent's call was cancelled"
        )


def test_what_nobody_serves_is_refused_by_name(pair):
    gateway, agent = pair
    refused = {"agent": "none", "method": "CreateTask", "code": "NOT_FOUND"}
    before = gateway.count("agent_gateway_requests_total", **refused)
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.CreateTask(create("unheard"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert "'unheard' version 0" in caught.value.details()
        assert "legacy (0), prompt (0)" in caught.value.details()
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetTask(get("legacy", 4))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetTask(agent_pb2.GetTaskRequest(resource_meta=b"x"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            list(agent_pb2_grpc.SyncAgentServiceStub(channel).ExecuteTaskSync(iter(())))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert agent.events() == []
    assert gateway.count("agent_gateway_requests_total", **refused) == before + 1


def test_the_metadata_service_answers_for_all(pair):
    gateway, _ = pair
    found = {agent.name: agent for agent in gateway.answers()}
    assert set(found) == {"old async", "old sync"}
    assert found["old sync"].is_sync
    assert list(found["old async"].supported_task_types) == ["legacy"]
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AgentMetadataServiceStub(channel)
        assert stub.GetAgent(agent_pb2.GetAgentRequest(name="old sync")).agent == found["old sync"]
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetAgent(agent_pb2.GetAgentRequest(name="other"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert "old async, old sync" in caught.value.details()
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "flyteidl.service.AsyncAgentService", "flyteidl.service.SyncAgentService"):
            status = health.Check(health_pb2.HealthCheckRequest(service=service)).status
            assert status == health_pb2.HealthCheckResponse.SERVING


def test_a_large_input_passes(pair):
    gateway, agent = pair
    # Both ends of gRPC take 4 MiB by default: the gateway must not be what lowers or breaks that.
    request = create("legacy")
    request.inputs.literals["x"].scalar.binary.value = b"x" * 4_000_000
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        stub.CreateTask(request)
        request.inputs.literals["x"].scalar.binary.value = b"x" * 5_000_000
        with pytest.raises(grpc.RpcError) as caught:
            stub.CreateTask(request)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # the agent's own answer
    assert len(agent.events()) == 1


def test_a_gateway_that_is_its_own_agent_is_left_out(fleet, tmp_path):
    """The propeller's configuration, handed over unchanged, names the gateway as default agent."""
    agent = fleet.old_style("old", "--type", "async:legacy")
    config = tmp_path / "agents.yaml"
    port = fleet.free_port()
    block = {
        "pollInterval": "1s",
        "defaultAgent": {"endpoint": f"127.0.0.1:{port}", "insecure": True},
        "agents": {"old": {"endpoint": agent.endpoint, "insecure": True}},
    }
    write_config(config, block)
    gateway = fleet.gateway(config, "--port", str(port), ready=False)
    gateway.port = port
    gateway.ready()
    until(lambda: gateway.serves() == {("legacy", 0)}, "the other agent's type alone")
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        assert stub.GetTask(get("legacy")).resource.message == "old"
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetTask(get("unheard"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    # A type that goes away must not live on because the gateway hears it from itself.
    del block["agents"]["old"]
    write_config(config, block)
    until(lambda: gateway.serves() == set(), "the type is gone")


def test_a_chain_of_gateways_passes_calls_on(fleet, tmp_path):
    agent = fleet.old_style("old", "--type", "async:legacy")
    behind = fleet.gateway(
        write_config(tmp_path / "b.yaml", {"agents": {"old": {"endpoint": agent.endpoint, "insecure": True}}}),
        "--name",
        "behind",
    )
    front = fleet.gateway(
        write_config(tmp_path / "f.yaml", {"defaultAgent": {"endpoint": behind.endpoint, "insecure": True}})
    )
    until(lambda: front.serves() == {("legacy", 0)}, "the type behind the other gateway")
    with front.channel() as channel:
        answer = agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy"))
        assert answer.resource.message == "old"


def test_a_call_that_comes_back_is_refused(fleet, tmp_path):
    """Two gateways of one name that name each other: each takes the other for itself, and no call goes round."""
    ports = fleet.free_port(), fleet.free_port()
    gateways = []
    for own, other in (ports, ports[::-1]):
        config = write_config(
            tmp_path / f"{own}.yaml",
            {"pollInterval": "1s", "defaultAgent": {"endpoint": f"127.0.0.1:{other}", "insecure": True}},
        )
        gateway = fleet.gateway(config, "--port", str(own), ready=False)
        gateway.port = own
        gateways.append(gateway)
    for gateway in gateways:
        gateway.ready()
    until(lambda: gateways[0].log.read_text().count("is this gateway itself") == 2, "both have seen the way back")
    with gateways[0].channel() as channel, pytest.raises(grpc.RpcError) as caught:
        agent_pb2_grpc.AsyncAgentServiceStub(channel).CreateTask(create("any"), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
