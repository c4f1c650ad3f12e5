"""Real agents and a real gateway, each a process of its own, and how to wait for what they do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from flyteidl.admin import agent_pb2
from flyteidl.core import identifier_pb2, interface_pb2, literals_pb2, tasks_pb2, types_pb2
from flyteidl.service import agent_pb2_grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct
from ports import hold_port

from provisioner.demo.server import environment
from provisioner.engine import Engine
from provisioner.flyte import DataServiceConfig
from provisioner.settings import Settings
from provisioner.spec import Port

HERE = Path(__file__).parent
# Seconds within which a process must show what a test waits for; importing flytekit takes several on a busy machine.
PATIENCE = 60.0
# Seconds for one call of a test to a process that is up, which may stand still for a moment like every other.
CALL = 30.0


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Wait until a condition gives something true, and return that; errors of calls count as not yet."""
    deadline = time.monotonic() + patience
    problem: object = "it is false"
    while time.monotonic() < deadline:
        try:
            found = condition()
        except (grpc.RpcError, OSError) as error:
            found, problem = None, error
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"within {patience} s not seen: {what}; last: {problem}")


@dataclass
class Process:
    """A server that can be killed and brought back on the same port."""

    command: list[str]
    log: Path
    port: int
    journal: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    running: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Process:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0"} | self.environment,
                start_new_session=True,
            )
        return self

    def signal(self, number: int) -> None:
        assert self.running is not None
        self.running.send_signal(number)

    def kill(self) -> None:
        if self.running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
            self.running = None

    def wait(self, patience: float = PATIENCE) -> int:
        assert self.running is not None
        return self.running.wait(patience)

    def answers(self) -> list[agent_pb2.Agent]:
        """What it announces, if it does."""
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = agent_pb2_grpc.AgentMetadataServiceStub(channel)
            return list(stub.ListAgents(agent_pb2.ListAgentsRequest(), timeout=CALL).agents)

    def ready(self) -> Process:
        def up() -> bool:
            assert self.running is not None
            assert self.running.poll() is None, f"{self.command} ended:\n{self.log.read_text()[-3000:]}"
            self.answers()
            return True

        until(up, f"{self.command} answers", 2 * PATIENCE)
        return self

    def forget(self) -> None:
        """Begin a new journal."""
        assert self.journal is not None
        if self.journal.exists():
            os.truncate(self.journal, 0)

    def events(self) -> list[dict[str, Any]]:
        assert self.journal is not None
        if not self.journal.exists():
            return []
        # What stands behind the last line's end is a line that is being written.
        *lines, _ = self.journal.read_text().split("\n")
        return [json.loads(line) for line in lines]


@dataclass
class Gateway(Process):
    """`provisioner gateway` and its metrics."""

    metrics_port: int = 0
    config: Path = Path()

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of one metric, or None when it is not there."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=CALL).read().decode()
        for line in text.splitlines():
            found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if found:
                got = dict(re.findall(r'(\w+)="([^"]*)"', found[1] or ""))
                if all(got.get(key) == value for key, value in labels.items()):
                    return float(found[2])
        return None

    def count(self, name: str, **labels: str) -> float:
        """The value of one counter; 0 when it is not there yet."""
        return self.metric(name, **labels) or 0.0

    def serves(self) -> set[tuple[str, int]]:
        """The task types and versions that it announces."""
        return {(item.name, item.version) for agent in self.answers() for item in agent.supported_task_categories}

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.endpoint)


class Network:
    """A way to a server that can lose what is on it: as when a node is gone without a word.

    New connections lead to the port `to`, as those to a Service lead to what is ready.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self._lost: list[threading.Event] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lose(self) -> None:
        """From now on nothing passes on the connections there are; new ones work."""
        for lost in self._lost:
            lost.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                lost = threading.Event()
                self._lost.append(lost)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, target, lost), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not lost.is_set():
                    target.sendall(data)
            if not lost.is_set():
                target.shutdown(socket.SHUT_WR)


class Fleet:
    """Starts servers for one test and ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        self._held: list[socket.socket] = []

    def free_port(self) -> int:
        """A port for a server of this fleet, which nobody else gets as long as the fleet is there."""
        held, port = hold_port()
        self._held.append(held)
        return port

    def _add(self, process: Process) -> Any:
        self.processes.append(process)
        return process.start()

    def old_style(self, name: str, *arguments: str, port: int | None = None, ready: bool = True) -> Process:
        """Our own agent with plain type names; see agents/old_style.py."""
        port = port or self.free_port()
        journal = self.folder / f"{name}.journal"
        command = [sys.executable, str(HERE / "agents" / "old_style.py"), str(port), str(journal), name, *arguments]
        process = self._add(Process(command, self.folder / f"{name}.log", port, journal))
        return process.ready() if ready else process

    def data_service(self, settings: Settings) -> Process:
        """The connector of this project, with a backend and a cluster behind it."""
        port = self.free_port()
        command = [sys.executable, "-m", "provisioner", "serve", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--metrics-port", "0"]
        log = self.folder / "data_service.log"
        return self._add(Process(command, log, port, environment=environment(settings)))

    def flytekit(self) -> Process:
        """`pyflyte serve connector` with the connectors that flytekit ships."""
        port = self.free_port()
        pyflyte = str(Path(sys.executable).with_name("pyflyte"))
        options = ["--port", str(port), "--prometheus_port", str(self.free_port())]
        return self._add(Process([pyflyte, "serve", "connector", *options], self.folder / "flytekit.log", port))

    def gateway(self, config: Path, *arguments: str, ready: bool = True) -> Gateway:
        port, metrics_port = self.free_port(), self.free_port()
        command = [sys.executable, "-m", "provisioner", "gateway", "--config", str(config), "--host", "127.0.0.1"]
        command += ["--port", str(port), "--metrics-port", str(metrics_port), *arguments]
        process = self._add(
            Gateway(command, self.folder / "gateway.log", port, metrics_port=metrics_port, config=config)
        )
        return process.ready() if ready else process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for holder in self._held:
            holder.close()


@pytest.fixture(scope="session")
def settings(settings_in: Callable[[Path], Settings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Backend and cluster of our connector; what a test leaves there is destroyed at the end."""
    folder = tmp_path_factory.mktemp("registry")
    found = settings_in(folder)
    yield found
    engine = Engine(found)
    for stack in list(engine.state.stacks()):
        engine.stack(stack).destroy()


# A service that starts at once.
SERVICE = DataServiceConfig(
    name="graph-store",
    image="localhost/busybox:sandbox",
    command=["/bin/busybox", "nc", "-ll", "-p", "9000", "-e", "/bin/busybox", "true"],
    ports=[Port(name="main", port=9000)],
    replicas=1,
    termination_grace_period_seconds=1,
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(tmp_path)
    yield found
    found.end()


@pytest.fixture(scope="module")
def module_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """As `fleet`, for servers that all tests of a file share."""
    found = Fleet(tmp_path_factory.mktemp("fleet"))
    yield found
    found.end()


def write_config(path: Path, block: dict[str, Any], name: str = "agent-service") -> Path:
    """Write a configuration as an editor does it: beside, then renamed over the old one."""
    beside = path.with_suffix(".new")
    beside.write_text(yaml.safe_dump({"plugins": {name: block}}, sort_keys=False))
    beside.replace(path)
    return path


def create(
    task_type: str,
    version: int = 0,
    order: str = "",
    custom: dict[str, Any] | None = None,
    texts: dict[str, str] | None = None,
    execution: str = "",
    attempt: int = 0,
) -> Any:
    """A CreateTaskRequest as the propeller sends it.

    Args:
        task_type: Its task type.
        version: The version of that.
        order: The output prefix; what an old-style agent is told to do.
        custom: The template's custom part.
        texts: Inputs of the task.
        execution: Name of the Flyte execution, as which the one task of each is created.
        attempt: Which attempt of that it is, counted from 0.
    """
    literals = {
        name: literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=literals_pb2.Primitive(string_value=text)))
        for name, text in (texts or {}).items()
    }
    found = template(task_type, version, custom, texts)
    run = identifier_pb2.WorkflowExecutionIdentifier(project="p", domain="development", name=execution)
    node = identifier_pb2.NodeExecutionIdentifier(node_id="n0", execution_id=run)
    return agent_pb2.CreateTaskRequest(
        template=found,
        inputs=literals_pb2.LiteralMap(literals=literals),
        output_prefix=order,
        task_execution_metadata=agent_pb2.TaskExecutionMetadata(
            task_execution_id=identifier_pb2.TaskExecutionIdentifier(
                task_id=found.id, node_execution_id=node, retry_attempt=attempt
            ),
            namespace="default",
        ),
    )


def template(
    task_type: str, version: int = 0, custom: dict[str, Any] | None = None, texts: dict[str, str] | None = None
) -> tasks_pb2.TaskTemplate:
    text = interface_pb2.Variable(type=types_pb2.LiteralType(simple=types_pb2.STRING))
    inputs = interface_pb2.VariableMap(variables=dict.fromkeys(texts or {}, text))
    return tasks_pb2.TaskTemplate(
        id=identifier_pb2.Identifier(
            resource_type=identifier_pb2.TASK, project="p", domain="development", name="t", version="1"
        ),
        type=task_type,
        task_type_version=version,
        metadata=tasks_pb2.TaskMetadata(),
        interface=interface_pb2.TypedInterface(inputs=inputs),
        custom=ParseDict(custom or {}, Struct()),
    )


def category(task_type: str, version: int = 0) -> agent_pb2.TaskCategory:
    return agent_pb2.TaskCategory(name=task_type, version=version)


def get(task_type: str, version: int = 0, order: bytes = b"") -> Any:
    return agent_pb2.GetTaskRequest(
        task_type=task_type, task_category=category(task_type, version), resource_meta=order
    )


def delete(task_type: str, version: int = 0, order: bytes = b"") -> Any:
    return agent_pb2.DeleteTaskRequest(
        task_type=task_type, task_category=category(task_type, version), resource_meta=order
    )
