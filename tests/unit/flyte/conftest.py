"""Control as an in-memory value: these tests are about what Flyte is told, not about clusters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.models.core.identifier import (
    Identifier,
    NodeExecutionIdentifier,
    ResourceType,
    TaskExecutionIdentifier,
    WorkflowExecutionIdentifier,
)
from flytekit.models.security import Identity as FlyteIdentity
from flytekit.models.task import TaskExecutionMetadata, TaskTemplate
from flytekit.tools.translator import get_serializable

from provisioner.cluster.objects import Container, Pod, Snapshot
from provisioner.control.replica_logs import LogEntry, LogPage, read_token
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Endpoint, Phase, Status
from provisioner.flyte import DataServiceConfig, DataServiceConnector, DataServiceTask
from provisioner.flyte.runtime import Runtime
from provisioner.identity import Identity, User
from provisioner.spec import Port


class FakeControl:
    """Remembers what it was asked; answers with the phase it was told."""

    def __init__(self) -> None:
        self.requests: dict[str, ServiceRequest] = {}
        self.calls: list[tuple[str, str]] = []
        self.answer: dict[str, Any] = {"phase": Phase.QUEUED}
        self.error: Exception | None = None
        self.started = 0
        self.stops: list[float] = []
        self.is_ready = True
        self.users: list[str] = []
        self.released: list[ServiceRequest | None] = []
        self.shown: Identity | None = None
        self.stop_waits: Callable[[float], bool] = lambda _: True

    def start(self) -> None:
        self.started += 1

    def stop(self, timeout: float) -> bool:
        self.stops.append(timeout)
        return self.stop_waits(timeout)

    def ready(self) -> bool:
        return self.is_ready

    def ensure(self, request: ServiceRequest) -> Status:
        return self._status("ensure", request)

    def observe(self, request: ServiceRequest) -> Status:
        return self._status("observe", request)

    def remove(self, request: ServiceRequest) -> Status:
        self._status("remove", request)
        self.requests.pop(request.stack, None)
        return Status(request.stack, Phase.GONE)

    def snapshot(self, identity: Identity) -> Snapshot:
        pods = tuple(
            Pod(identity.namespace, f"{identity.service}-{index}", containers=(Container("main", restarts=index),))
            for index in range(2)
        )
        return Snapshot(pods=pods)

    @property
    def replica_logs(self) -> FakeControl:
        return self

    def page(self, identity: Identity, *, lines: int, token: str) -> LogPage:
        read_token(token)
        self.calls.append(("logs", f"{identity.namespace}/{identity.service} {lines} {token}"))
        stamp = "2026-05-09T07:00:00.5Z"
        return LogPage((LogEntry(stamp, f"{identity.service}-0", "hello"),), f"{identity.service}-0={stamp}")

    def leave(self, request: ServiceRequest, *, anew: bool = False) -> Status:
        self._status("leave", request)
        self.requests.pop(request.stack, None)
        return Status(request.stack, Phase.GONE)

    def use(self, request: ServiceRequest, user: User) -> Status:
        self.users.append(user.holder)
        return self._status("use", request)

    @property
    def ending(self) -> FakeControl:
        return self

    def end(self, namespace: str, service: str, user: User) -> Status:
        self.calls.append(("end", f"{namespace}/{service} {user.holder}"))
        if self.error is not None:
            raise self.error
        return Status(service, **self.answer)

    def end_all(self, namespace: str, user: User) -> Status:
        self.calls.append(("end_all", f"{namespace} {user.holder}"))
        return Status("", **self.answer)

    @property
    def sharing(self) -> FakeControl:
        return self

    def identity(self, namespace: str, service: str) -> Identity | None:
        return self.shown

    def release(
        self, identity: Identity, user: User, *, request: ServiceRequest | None = None, whole_execution: bool = False
    ) -> None:
        self.calls.append(("release", f"{identity.stack} {user.holder}"))
        self.released.append(request)

    def attached(self, namespace: str, service: str, user: User | None) -> Status:
        self.users.append(user.holder if user is not None else "")
        self.calls.append(("attached", f"{namespace}/{service}"))
        endpoint = Endpoint(0, f"{service}-0.{service}.{namespace}.svc.cluster.local", 7, "main")
        return Status("", endpoints=(endpoint,), **self.answer)

    def _status(self, call: str, request: ServiceRequest) -> Status:
        self.calls.append((call, request.stack))
        if self.error is not None:
            raise self.error
        self.requests[request.stack] = request
        endpoints = tuple(
            Endpoint(ordinal, request.identity.replica_host(ordinal), port.port, port.name)
            for ordinal in range(request.spec.replicas)
            for port in request.spec.ports
        )
        values = {"endpoints": endpoints if self.answer["phase"] is Phase.READY else (), **self.answer}
        return Status(request.stack, wanted=request.spec.replicas, **values)


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def runtime(control: FakeControl) -> Runtime:
    return Runtime(lambda: control)


@pytest.fixture
def connector(runtime: Runtime) -> DataServiceConnector:
    return DataServiceConnector(runtime, clock=lambda: 1000.0)


@pytest.fixture
def task() -> DataServiceTask:
    return DataServiceTask(
        name="flow.graph_store",
        task_config=DataServiceConfig(
            name="graph",
            image="registry.example/store:1",
            ports=[Port(name="grpc", port=9000), Port(name="http", port=9001)],
            replicas=3,
        ),
    )


@pytest.fixture
def serialized() -> Callable[[Any], TaskTemplate]:
    def serialize(task: Any) -> TaskTemplate:
        settings = SerializationSettings(ImageConfig(), project="p", domain="d", version="v1")
        template = get_serializable(OrderedDict(), settings, task).template
        # As it arrives: through protobuf.
        return TaskTemplate.from_flyte_idl(template.to_flyte_idl())

    return serialize


@pytest.fixture
def template(task: DataServiceTask, serialized: Callable[[Any], TaskTemplate]) -> TaskTemplate:
    return serialized(task)


@pytest.fixture
def execution() -> Callable[..., TaskExecutionMetadata]:
    """The metadata that propeller sends, with any part of the id changed."""

    def metadata(
        project: str = "p",
        domain: str = "d",
        name: str = "exec1",
        node: str = "n0",
        task: str = "flow.graph_store",
        attempt: int = 0,
        namespace: str = "p-d",
    ) -> TaskExecutionMetadata:
        value = TaskExecutionMetadata(
            task_execution_id=TaskExecutionIdentifier(
                Identifier(ResourceType.TASK, project, domain, task, "v1"),
                NodeExecutionIdentifier(node, WorkflowExecutionIdentifier(project, domain, name)),
                attempt,
            ),
            namespace=namespace,
            labels={},
            annotations={},
            k8s_service_account="default",
            environment_variables={},
            identity=FlyteIdentity(),
        )
        return TaskExecutionMetadata.from_flyte_idl(value.to_flyte_idl())

    return metadata
