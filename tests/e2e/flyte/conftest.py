"""A real server as a process of its own, called with real protobuf as propeller calls it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flyteidl.core import tasks_pb2
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable
from ports import held_ports

from provisioner.cluster import ClusterClient
from provisioner.demo.caller import Caller, Execution
from provisioner.demo.objects import Objects
from provisioner.demo.server import ServerProcess
from provisioner.engine import Engine
from provisioner.flyte import DataServiceConfig, DataServiceTask
from provisioner.flyte.meta import DataServiceMeta
from provisioner.identity import Identity
from provisioner.settings import Settings
from provisioner.spec import Port

IMAGE = "localhost/busybox:sandbox"
LISTEN = ["/bin/busybox", "nc", "-ll", "-p", "9000", "-e", "/bin/busybox", "true"]


@pytest.fixture(scope="session")
def settings(settings_in: Callable[[Path], Settings], tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """One backend for all servers of these tests."""
    folder = tmp_path_factory.mktemp("flyte")
    return settings_in(folder)


@pytest.fixture(scope="session")
def server(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server of all tests that leave it alone."""
    process = ServerProcess(settings, tmp_path_factory.mktemp("server"))
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def caller(server: ServerProcess) -> Iterator[Caller]:
    connection = Caller(server.address)
    yield connection
    connection.close()


@pytest.fixture
def own_server(settings: Settings, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server for one test, which may end it."""
    process = ServerProcess(settings, tmp_path)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def execution(request: pytest.FixtureRequest) -> Callable[..., Execution]:
    """Executions that no other test has."""

    def execution(word: str = "a") -> Execution:
        return Execution(f"{request.node.name}-{word}", "default")

    return execution


@pytest.fixture
def serialize() -> Callable[[Any], tasks_pb2.TaskTemplate]:
    def serialize(task: Any) -> tasks_pb2.TaskTemplate:
        settings = SerializationSettings(ImageConfig(), project="p", domain="d", version="v1")
        return get_serializable(OrderedDict(), settings, task).template.to_flyte_idl()

    return serialize


@pytest.fixture
def template(serialize: Callable[[Any], tasks_pb2.TaskTemplate]) -> Callable[..., tasks_pb2.TaskTemplate]:
    """The template of a service that starts at once; any field of its configuration may be changed."""

    def template(**change: Any) -> tasks_pb2.TaskTemplate:
        fields = {
            "name": "store",
            "image": IMAGE,
            "command": LISTEN,
            "ports": [Port(name="main", port=9000)],
            "replicas": 2,
            "termination_grace_period_seconds": 1,
            **change,
        }
        return serialize(DataServiceTask(name="flow.store", task_config=DataServiceConfig(**fields)))

    return template


def identity(meta: bytes) -> Identity:
    """The service that a resource meta stands for."""
    return DataServiceMeta.decode(meta).content.request.identity


@pytest.fixture
def left(settings: Settings) -> Callable[[bytes], list[str]]:
    """What cluster and backend still hold of a service."""

    def left(meta: bytes) -> list[str]:
        service = identity(meta)
        state = Engine(settings).state
        found = ClusterClient(settings).remaining(service)
        return [*found, *(["stack"] if state.exists(service.stack) else []), *map(str, state.locks(service.stack))]

    return left


@pytest.fixture
def ports() -> Iterator[list[str]]:
    """Two ports for a server that cannot say which it chose: its own and that of its metrics."""
    with held_ports(2) as found:
        yield found


@pytest.fixture
def objects(settings: Settings) -> Objects:
    return Objects(ClusterClient(settings), "default")
