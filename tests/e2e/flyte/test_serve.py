"""The server's end: nothing is lost, no lock is left, and what is wrong is said in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import grpc
import httpx
from flyteidl.core.execution_pb2 import TaskExecution
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from provisioner.demo.caller import Caller
from provisioner.demo.objects import await_true
from provisioner.engine import Engine
from provisioner.flyte.meta import DataServiceMeta

PATIENCE = 120.0


def test_sigterm_in_the_middle_of_an_operation_leaves_no_lock_and_loses_nothing(
    own_server, settings, template, execution, left
) -> None:
    caller = Caller(own_server.address)
    meta = caller.create(template(), execution())
    await_true(lambda: caller.poll(meta).phase != TaskExecution.QUEUED, PATIENCE, "it is being applied")
    with grpc.insecure_channel(own_server.address) as channel:
        health = HealthStub(channel).Watch(HealthCheckRequest())
        assert next(health).status == HealthCheckResponse.SERVING
        os.kill(own_server.pid, signal.SIGTERM)
        assert next(health).status == HealthCheckResponse.NOT_SERVING
    caller.close()
    assert own_server.stop() == 0
    assert Engine(settings).state.locks(DataServiceMeta.decode(meta).content.request.stack) == []
    own_server.start()
    caller = Caller(own_server.address)
    caller.service(meta, PATIENCE)
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")
    caller.close()


def serve(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "provisioner", "serve", *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)


def test_a_port_in_use_is_one_line(server, environment: Callable[[], dict[str, str]]) -> None:
    port = server.address.rpartition(":")[2]
    result = serve(environment(), "--host", "127.0.0.1", "--port", port, "--metrics-port", "0")
    assert result.returncode == 1
    assert f"error: port {port} on 127.0.0.1 cannot be opened: address already in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_context_is_one_line(environment: Callable[[], dict[str, str]]) -> None:
    wrong = environment() | {"PROVISIONER_CONTEXT": "nowhere"}
    result = serve(wrong, "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0")
    assert result.returncode == 2
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.stderr


def test_metrics_count_what_was_asked(server, caller, template, execution, left) -> None:
    meta = caller.create(template(), execution())
    caller.service(meta, PATIENCE)
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")
    port = server.metrics_port
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'flyte_connector_requests_success_total{operation="create",task_type="dataservicetask"}' in text
    assert 'provisioner_operations_total{kind="apply",result="done"}' in text
