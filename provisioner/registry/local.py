"""Send the agent tasks of a workflow that runs locally to the deployed agents.

`pyflyte run` calls the connectors that are installed beside it, so that a
local run needs their packages and their credentials. With this, flytekit's own
registry gets stand-ins that make the same calls as Flyte's propeller does, to
the agents that serve the task types in the cluster.
"""

from __future__ import annotations

import atexit
import getpass
import itertools
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flyteidl.admin import agent_pb2
from flyteidl.core import execution_pb2, identifier_pb2, security_pb2
from flytekit.extend.backend.base_connector import (
    AsyncConnectorBase,
    ConnectorRegistry,
    Resource,
    ResourceMeta,
    SyncConnectorBase,
    TaskCategory,
)
from flytekit.models.literals import LiteralMap
from flytekit.models.task import TaskTemplate
from google.protobuf.json_format import MessageToDict

from provisioner import logs, settings
from provisioner.errors import PermanentError, TransientError
from provisioner.registry.blocking import AgentRegistry
from provisioner.registry.table import Mode, Route, RoutingTable

_PATIENCE = 5
"""Failures of GetTask in a row after which a local run gives up; each is a retried call already."""

_PHASE_OF_STATE = {
    agent_pb2.RETRYABLE_FAILURE: execution_pb2.TaskExecution.RETRYABLE_FAILED,
    agent_pb2.PERMANENT_FAILURE: execution_pb2.TaskExecution.FAILED,
    agent_pb2.PENDING: execution_pb2.TaskExecution.INITIALIZING,
    agent_pb2.RUNNING: execution_pb2.TaskExecution.RUNNING,
    agent_pb2.SUCCEEDED: execution_pb2.TaskExecution.SUCCEEDED,
}

_execution = f"local-{secrets.token_hex(4)}"
_nodes = itertools.count()


@dataclass
class RemoteMeta(ResourceMeta):  # type: ignore[misc]
    """What an agent answered to CreateTask, as it is."""

    data: bytes

    def encode(self) -> bytes:
        """The agent's own bytes."""
        return self.data

    @classmethod
    def decode(cls, data: bytes) -> RemoteMeta:
        """Take the agent's own bytes."""
        return cls(data)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"


def local_metadata(template: TaskTemplate) -> agent_pb2.TaskExecutionMetadata:
    """The execution metadata that Flyte would send; unique for each call.

    Agents name what they create by the execution id, so a local run needs one:
    project `local`, an execution name for this process, a node for each call.

    Args:
        template: The task's.
    """
    task = template.id.to_flyte_idl() if template.id else identifier_pb2.Identifier()
    execution = identifier_pb2.WorkflowExecutionIdentifier(project="local", domain="local", name=_execution)
    node = identifier_pb2.NodeExecutionIdentifier(node_id=f"n{next(_nodes)}", execution_id=execution)
    return agent_pb2.TaskExecutionMetadata(
        task_execution_id=identifier_pb2.TaskExecutionIdentifier(task_id=task, node_execution_id=node),
        identity=security_pb2.Identity(execution_identity=_user()),
    )


def resource_of(message: agent_pb2.Resource) -> Resource:
    """An agent's answer as flytekit's local execution takes it.

    An agent from before phases gives a state instead, which is read as the
    propeller reads it.
    """
    phase = message.phase or _PHASE_OF_STATE[message.state]
    return Resource(
        phase=phase,
        message=message.message,
        log_links=list(message.log_links),
        outputs=LiteralMap.from_flyte_idl(message.outputs) if message.HasField("outputs") else None,
        custom_info=MessageToDict(message.custom_info) if message.HasField("custom_info") else None,
    )


class RemoteAsyncConnector(AsyncConnectorBase):  # type: ignore[misc]
    """Stands in for the agent of one task type and version.

    All methods are plain functions: flytekit calls `delete` from a signal
    handler, where nothing can be awaited.
    """

    name = "Deployed agents (async)"

    def __init__(self, registry: AgentRegistry, task_type: str, version: int) -> None:
        super().__init__(metadata_type=RemoteMeta, task_type_name=task_type, task_type_version=version)
        self._registry = registry
        self._message = agent_pb2.TaskCategory(name=task_type, version=version)
        self._failures: dict[bytes, int] = {}

    def create(
        self,
        task_template: TaskTemplate,
        output_prefix: str,
        inputs: LiteralMap | None = None,
        task_execution_metadata: Any = None,
        **_: Any,
    ) -> RemoteMeta:
        """Create the task on the agent; never repeated."""
        metadata = task_execution_metadata.to_flyte_idl() if task_execution_metadata else local_metadata(task_template)
        request = agent_pb2.CreateTaskRequest(
            template=task_template.to_flyte_idl(),
            inputs=inputs.to_flyte_idl() if inputs else None,
            output_prefix=output_prefix,
            task_execution_metadata=metadata,
        )
        return RemoteMeta(self._registry.create_task(request).resource_meta)

    def get(self, resource_meta: RemoteMeta, **_: Any) -> Resource:
        """Ask for the state; an agent that is away for a while counts as running."""
        key = resource_meta.data
        request = agent_pb2.GetTaskRequest(task_type=self._message.name, task_category=self._message, resource_meta=key)
        try:
            answer = self._registry.get_task(request)
        except TransientError as error:
            self._failures[key] = self._failures.get(key, 0) + 1
            if self._failures[key] >= _PATIENCE:
                raise
            return Resource(phase=execution_pb2.TaskExecution.RUNNING, message=str(error))
        self._failures.pop(key, None)
        return resource_of(answer.resource)

    def delete(self, resource_meta: RemoteMeta, **_: Any) -> None:
        """Delete the task on the agent."""
        request = agent_pb2.DeleteTaskRequest(
            task_type=self._message.name, task_category=self._message, resource_meta=resource_meta.data
        )
        self._registry.delete_task(request)


class RemoteSyncConnector(SyncConnectorBase):  # type: ignore[misc]
    """Stands in for the agent of one task type and version that answers at once."""

    name = "Deployed agents (sync)"

    def __init__(self, registry: AgentRegistry, task_type: str, version: int) -> None:
        super().__init__(task_type_name=task_type, task_type_version=version)
        self._registry = registry

    def do(
        self, task_template: TaskTemplate, output_prefix: str, inputs: LiteralMap | None = None, **_: Any
    ) -> Resource:
        """Run the task on the agent; never repeated."""
        header = agent_pb2.CreateRequestHeader(
            template=task_template.to_flyte_idl(),
            output_prefix=output_prefix,
            task_execution_metadata=local_metadata(task_template),
        )
        requests = [agent_pb2.ExecuteTaskSyncRequest(header=header)]
        requests.append(agent_pb2.ExecuteTaskSyncRequest(inputs=(inputs or LiteralMap({})).to_flyte_idl()))
        answers = self._registry.execute_task_sync(requests)
        headers = [answer.header.resource for answer in answers if answer.HasField("header")]
        if not headers:
            raise PermanentError(f"the agent for {task_template.type} ended without an answer", reason="EmptyAnswer")
        resource = resource_of(headers[0])
        # The propeller takes outputs from the header alone; the service allows them after it too.
        expected = bool(task_template.interface and task_template.interface.outputs)
        for answer in answers:
            if expected and resource.outputs is None and answer.HasField("outputs"):
                resource.outputs = LiteralMap.from_flyte_idl(answer.outputs)
        return resource


class LocalRoutes:
    """The stand-ins that are in place.

    Attributes:
        registry: The registry that they call.
        routed: (task type, version, agent) of each.
    """

    def __init__(self, registry: AgentRegistry, owned: bool, routes: Iterable[tuple[Route, int]]) -> None:
        self.registry = registry
        self._owned = owned
        self._before: dict[TaskCategory, Any] = {}
        routed = []
        for route, version in routes:
            kind = RemoteSyncConnector if route.mode is Mode.SYNC else RemoteAsyncConnector
            connector = kind(registry, route.task_type, version)
            category = connector.task_category
            self._before[category] = ConnectorRegistry._REGISTRY.get(category)
            ConnectorRegistry.register(connector, override=True)
            routed.append((route.task_type, version, route.agent))
        self.routed = tuple(routed)
        atexit.register(self.close)

    def close(self) -> None:
        """Put back what was there before. May be called twice."""
        atexit.unregister(self.close)
        for category, connector in self._before.items():
            if connector is None:
                ConnectorRegistry._REGISTRY.pop(category, None)
            else:
                ConnectorRegistry._REGISTRY[category] = connector
        self._before = {}
        if self._owned:
            self.registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _selected(table: RoutingTable, task_types: Iterable[str] | None) -> Iterator[tuple[Route, int]]:
    served = {(name, version) for item in table.union for name, version in item.categories}
    wanted = sorted({name for name, _ in served}) if task_types is None else list(task_types)
    for task_type in wanted:
        versions = sorted(version for name, version in served if name == task_type) or [0]
        for version in versions:
            route = table.resolve(task_type, version)
            if route is None:
                raise PermanentError(
                    f"no agent serves task type {task_type!r}; known are: {table.describe_known()}",
                    reason="UnknownTaskType",
                    hint="see `provisioner agents`",
                )
            yield Route(task_type, version, route.mode, route.agent, route.why), version


def route_local_tasks(
    config: Path | str | AgentRegistry, task_types: Iterable[str] | None = None, **options: Any
) -> LocalRoutes:
    """Let tasks of a local run be executed by the deployed agents.

    Call it before the workflow runs, for example at the top of its module
    under `if __name__ == "__main__":`. A task must be one that flytekit hands
    to a connector locally (`AsyncConnectorExecutorMixin`, sensors included, or
    `SyncConnectorExecutorMixin`).

    Args:
        config: Configuration of the agents (see `parse.load`), or a registry
            that is open already.
        task_types: The types to send there; every type that is served when
            None.
        **options: Those of `AgentRegistry`.

    Returns:
        The stand-ins; they stay until it is closed or the process ends.

    Raises:
        PermanentError: Nobody serves one of the types.
        ProvisionerError: The configuration cannot be used.

    Example:
        >>> with route_local_tasks("agents.yaml", ["sensor"]):  # doctest: +SKIP
        ...     my_workflow()
    """
    logs.configure_as_guest(settings.load())
    registry = config if isinstance(config, AgentRegistry) else AgentRegistry(Path(config), **options)
    owned = registry is not config
    try:
        return LocalRoutes(registry, owned, list(_selected(registry.table, task_types)))
    except BaseException:
        if owned:
            registry.close()
        raise
