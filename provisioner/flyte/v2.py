"""Flyte 2: the same services, over the same control, for its SDK's connector server and its tasks.

Needs the extra `flyte`. Installed, the SDK's server loads this module by its
entry point group `flyte.connectors`; a workflow imports `DataServiceTask` from
here.

One thing differs from Flyte 1. There DeleteTask means that the execution was
aborted; here it also comes some time after the task succeeded, when Flyte
forgets the action, while the training may be in the middle of its work. So a
service that has come up is not removed by it: it ends by its `ttl`, by the
cleanup, or by hand. One that is still on its way up is removed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any, ClassVar, TypeVar

import structlog
from flyte.connectors import AsyncConnector, AsyncConnectorExecutorMixin, ConnectorRegistry, Resource
from flyte.extend import TaskTemplate
from flyte.models import NativeInterface, SerializationContext
from flyteidl.core import tasks_pb2
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl2.core import execution_pb2
from flytekit.extend.backend.base_connector import AsyncConnectorBase
from flytekit.models import literals
from flytekit.models.task import TaskTemplate as Template

from provisioner.flyte import cleaning
from provisioner.flyte import connector as flyte1
from provisioner.flyte import inputs as task_inputs
from provisioner.flyte.meta import DataServiceMeta, Wanted
from provisioner.flyte.runtime import RUNTIME, Runtime
from provisioner.flyte.service import DataService
from provisioner.flyte.task import TASK_TYPE, Config
from provisioner.identity import FLYTE2

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Calls answer from memory; the loop's own pool would have 6 on two processors, for everybody.
_CALL_THREADS = 16


class _Connector(AsyncConnector[Any]):
    """Answers with a connector of Flyte 1, in threads of its own.

    Args:
        connector: The other.
    """

    task_type_version = 0
    metadata_type = DataServiceMeta

    def __init__(self, connector: AsyncConnectorBase) -> None:
        self._connector = connector
        self._pool = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="flyte2")

    async def create(
        self,
        task_template: Any,
        output_prefix: str = "",
        inputs: dict[str, Any] | None = None,
        task_execution_metadata: Any = None,
        **_: Any,
    ) -> DataServiceMeta:
        """Ask for what one action wants; the same request again asks for the same.

        Args:
            task_template: Its `custom` says what is wanted.
            output_prefix: Not used.
            inputs: As Python values.
            task_execution_metadata: Whose it is; None in a local run.

        Returns:
            All that later calls need.

        Raises:
            ProvisionerError: As the connector of Flyte 1.
        """
        # Both generations write a template alike; each has Python classes of its own.
        template = Template.from_flyte_idl(tasks_pb2.TaskTemplate.FromString(task_template.SerializeToString()))
        values = literals.LiteralMap({name: literal(value) for name, value in (inputs or {}).items()})
        whose = {"task_execution_metadata": _marked(task_execution_metadata)}
        meta: DataServiceMeta = await self._call(
            lambda: self._connector.create(template, output_prefix, values, **whose)
        )
        return meta

    async def get(self, resource_meta: DataServiceMeta, **_: Any) -> Resource:
        """How it is.

        Args:
            resource_meta: What `create` returned.
        """
        found = await self._call(lambda: self._connector.get(resource_meta))
        links = [execution_pb2.TaskLog.FromString(link.SerializeToString()) for link in found.log_links or ()]
        return Resource(found.phase, found.message, links, found.outputs, found.custom_info)

    async def delete(self, resource_meta: DataServiceMeta, **_: Any) -> None:
        """End it.

        Args:
            resource_meta: What `create` returned.

        Raises:
            ProvisionerError: It cannot be ended now; Flyte calls again.
        """
        await self._call(lambda: self._delete(resource_meta))

    def _delete(self, meta: DataServiceMeta) -> None:
        self._connector.delete(meta)

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


class DataServiceConnector(_Connector):
    """Provides data services to Flyte 2 tasks of type `dataservicetask`.

    Args:
        runtime: Gives the control; this process's own by default.
        clock: The time in seconds since the epoch.
    """

    name = flyte1.DataServiceConnector.name
    task_type_name = TASK_TYPE

    def __init__(self, runtime: Runtime = RUNTIME, clock: Callable[[], float] = time.time) -> None:
        super().__init__(flyte1.DataServiceConnector(runtime, clock))
        self._clock = clock

    def _delete(self, meta: DataServiceMeta) -> None:
        deadline = meta.content.request.deadline if isinstance(meta.content, Wanted) else None
        if had_succeeded(self._connector.get(meta).phase, deadline, self._clock()):
            log.info("service kept: its task had succeeded", meta=type(meta.content).__name__)
            return
        super()._delete(meta)


class CleanupConnector(_Connector):
    """Ends uses of data services for Flyte 2 tasks of type `dataservicecleanup`.

    Args:
        runtime: Gives the control; this process's own by default.
    """

    name = cleaning.CleanupConnector.name
    task_type_name = cleaning.CLEANUP_TYPE

    def __init__(self, runtime: Runtime = RUNTIME) -> None:
        super().__init__(cleaning.CleanupConnector(runtime))


def _marked(metadata: Any) -> Any:
    """Metadata with a name of the run that says which generation it is of: the janitor asks nobody about it."""
    if metadata is None:
        return None
    marked = type(metadata)()
    marked.CopyFrom(metadata)
    run = marked.task_execution_id.node_execution_id.execution_id
    if run.name:
        run.name = f"{FLYTE2}{run.name}"
    return marked


def had_succeeded(phase: int, deadline: float | None, now: float) -> bool:
    """Whether a service's task had succeeded before its deletion was asked for.

    A service that is not ready may have been: a replica is being replaced. It
    was, if its start deadline is over, because at the deadline what has never
    been ready fails and is removed.

    Args:
        phase: What GetTask would answer now.
        deadline: The start deadline, in seconds since the epoch; None for a
            service that somebody else made.
        now: Seconds since the epoch.
    """
    if phase == TaskExecution.FAILED:
        return False
    return phase == TaskExecution.SUCCEEDED or (deadline is not None and now > deadline)


def literal(value: Any) -> literals.Literal:
    """A Python value as Flyte 1 carries it.

    Args:
        value: A number, text, boolean, time, duration, list, map, structure,
            file or folder, or None. Anything else may be there to order the
            task; a field that it shall fill is refused.
    """
    if isinstance(value, Enum):
        value = value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if value is None:
        return literals.Literal(scalar=literals.Scalar(none_type=literals.Void()))
    if isinstance(value, list | tuple):
        return literals.Literal(collection=literals.LiteralCollection([literal(item) for item in value]))
    if isinstance(value, Mapping):
        return literals.Literal(map=literals.LiteralMap({str(key): literal(item) for key, item in value.items()}))
    primitive = _primitive(value)
    if primitive is None:
        return literals.Literal(scalar=literals.Scalar(binary=literals.Binary(b"", type(value).__name__)))
    return literals.Literal(scalar=literals.Scalar(primitive=primitive))


_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "float_value",
    str: "string_value",
    datetime: "datetime",
    timedelta: "duration",
}


def _primitive(value: Any) -> literals.Primitive | None:
    if not isinstance(value, str):
        # A file or a folder is known by where it is.
        place = value if isinstance(value, PurePath) else getattr(value, "path", None)
        value = value if place is None else str(place)
    for kind, field in _KINDS.items():
        if isinstance(value, kind):
            return literals.Primitive(**{field: value})
    return None


class DataServiceTask(AsyncConnectorExecutorMixin, TaskTemplate):  # type: ignore[type-arg]
    """Provides a data service to a Flyte 2 workflow; returns a `DataService` once each replica is ready.

    Args:
        name: Name of the task.
        task_config: A `DataServiceConfig`. Give it a `ttl`: nobody tells when
            a run of Flyte 2 has ended.
        inputs: Names and types of inputs that fill the configuration.
        kwargs: Flyte's own.

    Raises:
        SpecError: With everything that is wrong with the configuration.

    Example:
        >>> store = DataServiceTask("graph-store", DataServiceConfig(image="localhost/store:1", ttl="8h"))
        ...     # doctest: +SKIP
    """

    OUTPUTS: ClassVar[Mapping[str, type]] = {"service": DataService}

    def __init__(
        self, name: str, task_config: Config | None, inputs: Mapping[str, type] | None = None, **kwargs: Any
    ) -> None:
        self._custom = task_config.custom() if task_config else {}
        task_inputs.check(self._custom, tuple(inputs or ()), source=f"task_config of {name}")
        interface = NativeInterface(
            {key: (kind, inspect.Parameter.empty) for key, kind in (inputs or {}).items()}, dict(self.OUTPUTS)
        )
        super().__init__(name=name, interface=interface, task_type=TASK_TYPE, image=None, **kwargs)

    def custom_config(self, sctx: SerializationContext) -> dict[str, Any]:  # noqa: ARG002 - Flyte's signature
        """The configuration, as the connector reads it."""
        return self._custom


class CleanupTask(AsyncConnectorExecutorMixin, TaskTemplate):  # type: ignore[type-arg]
    """Ends a run's use of a data service, given its name; returns once that is verified.

    Args:
        name: Name of the task.
        kwargs: Flyte's own.

    Example:
        >>> end = CleanupTask("end-graph-store")  # doctest: +SKIP
        >>> await end(release_name=graph.name)  # doctest: +SKIP
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        interface = NativeInterface({cleaning.RELEASE_NAME: (str, inspect.Parameter.empty)}, {})
        super().__init__(name=name, interface=interface, task_type=cleaning.CLEANUP_TYPE, image=None, **kwargs)


ConnectorRegistry.register(DataServiceConnector(), override=True)
ConnectorRegistry.register(CleanupConnector(), override=True)
