"""The gateway as a process: reload, signals, drain, ports."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request

import grpc
import grpc.aio
import pytest
from flyteidl.admin import agent_pb2
from flyteidl.core import execution_pb2
from flyteidl.service import agent_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from provisioner.registry.calls import HOP_HEADER

from .conftest import CALL, PATIENCE, Network, category, create, get, until, write_config

NEVER = "1h"  # a poll interval that no test lives to see


def agent_block(agent, **more):
    # A busy machine must not make an agent look silent.
    one = {"endpoint": agent.endpoint, "insecure": True, "defaultTimeout": "60s", "timeouts": {"ListAgents": "50s"}}
    return {"agents": {"old": one}, **more}


def test_a_changed_file_takes_effect_at_once_and_a_broken_one_never(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    new = fleet.old_style("new", "--type", "async:fresh")
    block = agent_block(old, pollInterval=NEVER)
    config = write_config(tmp_path / "agents.yaml", block)
    gateway = fleet.gateway(config)
    assert gateway.serves() == {("legacy", 0)}
    block["agents"]["new"] = agent_block(new)["agents"]["old"]
    write_config(config, block)
    until(lambda: gateway.serves() == {("legacy", 0), ("fresh", 0)}, "the new agent, without a poll")

    # At once, since the gateway may look at any moment: a file that is only half written says something else.
    write_config(config, {"defaultAgent": {"endpoint": 5}})
    until(lambda: gateway.metric("agent_registry_config_valid") == 0, "the file is known to be broken")
    rounds = gateway.count("agent_registry_rounds_total", result="ok")
    gateway.signal(signal.SIGHUP)
    until(lambda: gateway.count("agent_registry_rounds_total", result="ok") > rounds, "a round with the old one")
    assert gateway.serves() == {("legacy", 0), ("fresh", 0)}
    assert "configuration is broken, the old one stays in use" in gateway.log.read_text()

    del block["agents"]["old"]
    write_config(config, block)
    until(lambda: gateway.serves() == {("fresh", 0)}, "the mended file")
    assert gateway.metric("agent_registry_config_valid") == 1


def test_sighup_starts_a_round(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", agent_block(old, pollInterval=NEVER)))
    old.kill()
    old.command.extend(["--type", "async:more"])
    old.start().ready()
    assert gateway.serves() == {("legacy", 0)}
    gateway.signal(signal.SIGHUP)
    until(lambda: gateway.serves() == {("legacy", 0), ("more", 0)}, "a round after SIGHUP")


def test_entries_of_a_silent_agent_end_at_their_age(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    config = write_config(tmp_path / "agents.yaml", agent_block(old, pollInterval="300ms"))
    gateway = fleet.gateway(config, "--stale-after", "3s")
    until(lambda: gateway.serves() == {("legacy", 0)}, "it has answered")
    # The gauge of what is stale may have come and gone between two looks at it.
    before = gateway.count("agent_registry_agent_silences_total", agent="old")
    old.kill()
    until(lambda: gateway.count("agent_registry_agent_silences_total", agent="old") > before, "its silence is noticed")
    until(lambda: gateway.serves() == set(), "its entries end")
    assert gateway.metric("agent_registry_agent_answer_age_seconds", agent="old") > 3
    with gateway.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy"), timeout=CALL)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "not answering: old" in caught.value.details()


def test_a_hung_agent_delays_nobody_and_its_connection_is_given_up(fleet, tmp_path):
    hung = fleet.old_style("hung", "--type", "async:slow")
    old = fleet.old_style("old", "--type", "async:legacy")
    block = agent_block(old, pollInterval="2s")
    block["agents"]["hung"] = {"endpoint": hung.endpoint, "insecure": True, "defaultTimeout": "100s"}
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", block))
    until(lambda: gateway.metric("agent_registry_agent_up", agent="hung") == 1, "it answers before it hangs")
    hung.signal(signal.SIGSTOP)
    until(lambda: gateway.metric("agent_registry_agent_stale", agent="hung") == 1, "the hung agent is stale")
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        assert stub.GetTask(get("legacy"), timeout=CALL).resource.message == "old"
        # A news of another agent takes effect although the hung one could take 100 s.
        old.kill()
        old.command.extend(["--type", "async:more"])
        old.start()
        until(lambda: ("more", 0) in gateway.serves(), "the other agent's news")
        # Another process takes the hung one's place, as a pod behind a Service does.
        hung.kill()
        hung.start()
        assert stub.GetTask(get("slow"), timeout=PATIENCE).resource.message == "hung"


def test_a_connection_that_lost_its_other_end_is_replaced(fleet, tmp_path):
    """A node that is gone sends nothing, not even that it is gone; TCP would notice in a quarter of an hour."""
    old = fleet.old_style("old", "--type", "async:legacy")
    network = Network(old.port)
    block = agent_block(network, pollInterval="1s")
    block["agents"]["old"]["timeouts"] = {"ListAgents": "3s"}
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", block))
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        assert stub.GetTask(get("legacy"), timeout=CALL).resource.message == "old"
        before = gateway.count("agent_registry_agent_silences_total", agent="old")
        network.lose()
        # The gauge may have come and gone between two looks at it.
        until(lambda: gateway.count("agent_registry_agent_silences_total", agent="old") > before, "the loss is noticed")
        until(lambda: gateway.metric("agent_registry_agent_up", agent="old") == 1, "a new connection is made")
        assert stub.GetTask(get("legacy"), timeout=PATIENCE).resource.message == "old"
    network.close()


def health_of(gateway):
    # A channel of its own: one that has failed waits longer and longer before it tries again.
    with gateway.channel() as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=CALL).status


@pytest.mark.parametrize("watching", [False, True], ids=["alone", "with a health watch open"])
def test_sigterm_lets_calls_in_flight_end_and_refuses_none_before(fleet, tmp_path, watching):
    old = fleet.old_style("old", "--type", "async:legacy")
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", agent_block(old)), "--drain-timeout", "55s")
    gate = tmp_path / "gate"
    order = f"wait:{gate}".encode()
    with gateway.channel() as channel:
        stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(health).status == health_pb2.HealthCheckResponse.SERVING
        held = stub.GetTask.future(get("legacy", order=order), timeout=PATIENCE)
        request = agent_pb2.GetTaskLogsRequest(task_category=category("legacy"), resource_meta=order, lines=3)
        logs = stub.GetTaskLogs(request, timeout=PATIENCE)
        assert next(logs).header.token == "first"
        until(lambda: len(old.events()) == 2, "both calls arrived")
        gateway.signal(signal.SIGTERM)
        assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
        if not watching:
            health.cancel()
        assert stub.GetTask(get("legacy"), timeout=CALL).resource.message == "old"
        gate.touch()
        assert held.result().resource.message == "old"
        assert len(list(logs)) == 3
    assert gateway.wait(50) == 0  # earlier than the drain timeout
    assert '"calls_cut_off": 0' in gateway.log.read_text()


async def test_a_rolling_update_of_the_gateway_loses_no_call(fleet, tmp_path):
    """Callers are moved to the other replica by renewed connections while the first one drains."""
    old = fleet.old_style("old", "--type", "async:legacy")
    config = write_config(tmp_path / "agents.yaml", agent_block(old))
    first, second = (fleet.gateway(config, "--drain-timeout", "25s", "--name", name) for name in ("first", "second"))
    service = Network(first.port)
    failures, answers, over, gate = [], [], asyncio.Event(), tmp_path / "gate"

    async def caller(name):
        # Each has a connection of its own, as callers in several processes have.
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(service.endpoint, options=options) as channel:
            stub = agent_pb2_grpc.AsyncAgentServiceStub(channel)
            while not over.is_set():
                try:
                    answers.append((await stub.CreateTask(create("legacy", order=name), timeout=CALL)).resource_meta)
                except grpc.aio.AioRpcError as error:
                    failures.append(error)

    callers = {f"caller-{number}" for number in range(8)}

    async def keep_busy():
        # A gateway without a call for half a second takes it that nobody is coming, and so long the callers, which
        # are all in this process, may well stand still.
        async with grpc.aio.insecure_channel(first.endpoint) as channel:
            order = f"wait:{gate}".encode()
            await agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy", order=order), timeout=PATIENCE)

    def last_ways():
        """Caller -> the gateway by which its last call came."""
        return {event["order"]: event["metadata"][HOP_HEADER] for event in old.events()[-500:]}

    async with asyncio.TaskGroup() as group:
        busy = group.create_task(keep_busy())
        await asyncio.to_thread(until, old.events, "a call is in flight")
        for name in callers:
            group.create_task(caller(name))
        await asyncio.to_thread(until, lambda: len(answers) > 50, "calls are running")
        service.to = second.port
        first.signal(signal.SIGTERM)
        moved = dict.fromkeys(callers, "second")
        await asyncio.to_thread(until, lambda: last_ways() == moved, "all callers have moved")
        gate.touch()
        await busy
        assert await asyncio.to_thread(first.wait) == 0
        after = len(answers)
        await asyncio.to_thread(until, lambda: len(answers) > after + 50, "calls go on at the other replica")
        over.set()
    service.close()
    assert failures == []
    assert '"drained": true' in first.log.read_text(), "callers stayed until they were cut off"
    creates = [event for event in old.events() if event["method"] == "CreateTask"]
    assert len(creates) == len(answers)


def test_what_does_not_end_in_time_is_cancelled(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", agent_block(old)), "--drain-timeout", "500ms")
    with gateway.channel() as channel:
        held = agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask.future(
            get("legacy", order=f"wait:{tmp_path / 'never'}".encode()), timeout=PATIENCE
        )
        until(old.events, "the call arrived")
        gateway.signal(signal.SIGTERM)
        assert gateway.wait(40) == 0  # before the call ends by itself
        assert held.exception() is not None
    until(lambda: any(event.get("cancelled") for event in old.events()), "the agent's call was cancelled")


def test_a_second_signal_ends_at_once(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", agent_block(old)), "--drain-timeout", "1h")
    with gateway.channel() as channel:
        held = agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask.future(
            get("legacy", order=f"wait:{tmp_path / 'never'}".encode()), timeout=PATIENCE
        )
        until(old.events, "the call arrived")
        gateway.signal(signal.SIGTERM)
        until(lambda: "gateway stops" in gateway.log.read_text(), "it stops")
        gateway.signal(signal.SIGTERM)
        assert gateway.wait(40) == 0  # before the call ends by itself
        assert held.exception() is not None


def test_it_serves_before_a_silent_agent_has_answered_but_not_before_it_was_asked(fleet, tmp_path):
    """The first calls wait for the first round, so that no type is unknown just because it is early."""
    old = fleet.old_style("old", "--type", "async:legacy")
    old.signal(signal.SIGSTOP)
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", agent_block(old, pollInterval="20s")), ready=False)
    until(lambda: health_of(gateway) == health_pb2.HealthCheckResponse.NOT_SERVING, "it says that it is not ready")
    with gateway.channel() as channel:
        early = agent_pb2_grpc.AsyncAgentServiceStub(channel).CreateTask.future(create("legacy"), timeout=PATIENCE)
        until(lambda: old.running is not None and not early.done(), "the call waits")
        old.signal(signal.SIGCONT)
        assert early.result().resource_meta == b"task"
        assert health_of(gateway) == health_pb2.HealthCheckResponse.SERVING


def test_it_can_be_stopped_while_it_asks_for_the_first_time(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    old.signal(signal.SIGSTOP)
    config = write_config(tmp_path / "agents.yaml", agent_block(old, pollInterval=NEVER))
    config.write_text(config.read_text().replace("50s", "1h"))
    gateway = fleet.gateway(config, ready=False)
    until(lambda: health_of(gateway) == health_pb2.HealthCheckResponse.NOT_SERVING, "it is up and asks")
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0


def test_an_agent_without_metadata_is_reached_by_its_explicit_entry(fleet, tmp_path):
    mute = fleet.old_style("mute", "--no-metadata", ready=False)
    block = {
        "agents": {"mute": {"endpoint": mute.endpoint, "insecure": True}},
        "agentForTaskTypes": [{"ancient": "mute"}],
    }
    gateway = fleet.gateway(write_config(tmp_path / "agents.yaml", block))
    until(lambda: gateway.metric("agent_registry_agent_up", agent="mute") == 1, "it counts as there")
    assert gateway.serves() == {("ancient", 0)}
    with gateway.channel() as channel:
        answer = agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("ancient", 3), timeout=CALL)
    assert answer.resource.phase == execution_pb2.TaskExecution.RUNNING


def run(*words):
    command = [sys.executable, "-m", "provisioner", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_taken_port_is_an_error_and_not_shared(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    config = write_config(tmp_path / "agents.yaml", agent_block(old))
    gateway = fleet.gateway(config)
    common = ["gateway", "--config", str(config), "--host", "127.0.0.1"]
    second = run(*common, "--port", str(gateway.port), "--metrics-port", "0")
    assert (second.returncode, second.stdout) == (1, "")
    assert f"cannot listen on 127.0.0.1:{gateway.port}" in second.stderr
    third = run(*common, "--port", "0", "--metrics-port", str(gateway.metrics_port))
    assert third.returncode == 1
    assert f"cannot listen on 127.0.0.1:{gateway.metrics_port} for metrics" in third.stderr


def test_free_ports_are_chosen_and_written_down(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    ready = tmp_path / "ready.json"
    config = write_config(tmp_path / "agents.yaml", agent_block(old))
    gateway = fleet.gateway(config, "--port", "0", "--metrics-port", "0", "--ready-file", str(ready), ready=False)
    until(ready.exists, "the file with the addresses")
    addresses = json.loads(ready.read_text())
    gateway.port = addresses["port"]
    assert gateway.serves() == {("legacy", 0)}
    page = urllib.request.urlopen(f"http://127.0.0.1:{addresses['metrics_port']}/metrics", timeout=CALL).read().decode()
    for name in ("agent_up", "agent_answer_age_seconds", "agent_stale", "routes", "conflicts", "table_age_seconds"):
        assert f"agent_registry_{name}" in page
    assert (
        f"gRPC 127.0.0.1:{addresses['port']}, metrics 127.0.0.1:{addresses['metrics_port']}" in gateway.log.read_text()
    )
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    assert not ready.exists()
