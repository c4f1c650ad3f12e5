"""Under flytekit's own commands: its server, and a workflow that runs on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from provisioner.cluster.api import STATEFULSETS
from provisioner.demo.caller import Caller
from provisioner.demo.objects import Objects, await_true
from provisioner.engine import Engine
from provisioner.identity import LABEL_PROJECT
from provisioner.settings import Settings

PATIENCE = 120.0
PYFLYTE = [str(Path(sys.executable).with_name("pyflyte"))]
OURS = f"{LABEL_PROJECT}=local"
WORKFLOW = """
import sys, time
from flytekit import task, workflow
from provisioner.flyte import DataService, DataServiceConfig, DataServiceTask
from provisioner.spec import Port

store = DataServiceTask(
    name="store",
    task_config=DataServiceConfig(
        image="{image}",
        command=["/bin/busybox", "nc", "-ll", "-p", "9000", "-e", "/bin/busybox", "true"],
        ports=[Port(name="main", port=9000)],
        replicas=2,
        termination_grace_period_seconds=1,
    ),
)

@task
def read(graph: DataService, seconds: int) -> str:
    graph.wait_until_reachable(60)
    print("reading", graph.targets["main"], "at", ",".join(graph.addresses()), flush=True)
    time.sleep(seconds)
    return graph.name

@workflow
def flow(seconds: int = 0) -> str:
    return read(graph=store(), seconds=seconds)
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """A backend in which nobody else leaves anything."""
    return settings.model_copy(
        update={"backend": f"file://{tmp_path / 'backend'}", "passphrase_file": tmp_path / "passphrase"}
    )


def test_pyflyte_serve_connector_serves_the_same(
    environment: Callable[[], dict[str, str]], ports, template, execution, left, tmp_path: Path
) -> None:
    port, metrics_port = ports
    command = [*PYFLYTE, "serve", "connector", "--port", port, "--prometheus_port", metrics_port]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | environment(), stdout=log, stderr=log)
    try:
        address = f"127.0.0.1:{port}"
        with grpc.insecure_channel(address) as channel:
            HealthStub(channel).Check(HealthCheckRequest(), wait_for_ready=True, timeout=PATIENCE)
        caller = Caller(address)
        meta = caller.create(template(), execution())
        assert len(caller.service(meta, PATIENCE).endpoints) == 2
        caller.delete(meta)
        await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")
        caller.close()
    finally:
        process.kill()
        process.wait()


class LocalRun:
    """`pyflyte run` of a workflow, as a process of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], image: str, seconds: int = 0) -> None:
        (folder / "flow.py").write_text(WORKFLOW.replace("{image}", image))
        self.log = folder / "run.log"
        command = [*PYFLYTE, "run", "flow.py", "flow", "--seconds", str(seconds)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def run(environment: Callable[[], dict[str, str]], tmp_path: Path) -> Iterator[Callable[..., LocalRun]]:
    started: list[LocalRun] = []

    def run(image: str = "localhost/busybox:sandbox", seconds: int = 0) -> LocalRun:
        started.append(LocalRun(tmp_path, environment(), image, seconds))
        return started[-1]

    yield run
    for item in started:
        item.end()


@pytest.fixture
def nothing_is_left(objects: Objects, settings) -> Callable[[], bool]:
    def nothing_is_left() -> bool:
        return (
            not objects.names(OURS)
            and not objects.listed(STATEFULSETS, OURS)
            and not list(Engine(settings).state.stacks())
        )

    return nothing_is_left


def test_a_local_run_gets_its_service_and_takes_it_along(run, nothing_is_left) -> None:
    local = run()
    assert local.process.wait(PATIENCE) == 0, local.text
    # pyflyte wraps long lines.
    found = re.sub(r"\s", "", local.text)
    assert re.search(r"reading(store-[a-z0-9]+)-0\.\1\.default\.svc\.cluster\.local:9000,\1-1\.", found), local.text
    # This process is in no pod: it reaches the pods by their own addresses.
    assert re.search(r"at(\d+\.){3}\d+:9000,(\d+\.){3}\d+:9000", found), local.text
    assert nothing_is_left()


def test_ctrl_c_while_it_starts_removes_it(run, objects, nothing_is_left) -> None:
    local = run(image="127.0.0.1:5999/missing:1")
    await_true(lambda: objects.listed(STATEFULSETS, OURS) != [], PATIENCE, "the service is being started")
    os.kill(local.process.pid, signal.SIGINT)
    assert local.process.wait(PATIENCE) != 0
    assert nothing_is_left(), local.text


def test_ctrl_c_while_a_later_task_runs_removes_it(run, nothing_is_left) -> None:
    local = run(seconds=600)
    await_true(lambda: "reading" in local.text, PATIENCE, "the second task runs")
    os.kill(local.process.pid, signal.SIGINT)
    assert local.process.wait(PATIENCE) != 0
    assert nothing_is_left(), local.text


def test_a_killed_run_leaves_nothing_either(run, nothing_is_left) -> None:
    local = run(seconds=600)
    await_true(lambda: "reading" in local.text, PATIENCE, "the second task runs")
    local.process.kill()
    local.process.wait()
    await_true(nothing_is_left, PATIENCE, "its child has removed the service")
    deadline = time.monotonic() + PATIENCE
    while "gone" not in local.text:
        assert time.monotonic() < deadline, local.text
        time.sleep(0.1)
