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
from flyteidl2.core import execution_pb2
from flytekit.models import literals
from flytekit.models.task import TaskTemplate as Template

from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.flyte import inputs as task_inputs
from provisioner.flyte.connector import DataServiceConnector as Connector
from provisioner.flyte.meta import DataServiceMeta, Wanted
from provisioner.flyte.runtime import RUNTIME, Runtime
from provisioner.flyte.service import DataService
from provisioner.flyte.task import TASK_TYPE, Config

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Calls answer from memory; the loop's own pool would have 6 on two processors, for everybody.
_CALL_THREADS = 16


class DataServiceConnector(AsyncConnector[Any]):
    """Provides data services to Flyte 2 tasks of type `dataservicetask`.

    Args:
        runtime: Gives the control; this process's own by default.
        clock: The time in seconds since the epoch.
    """

    name = Connector.name
    task_type_name = TASK_TYPE
    task_type_version = 0
    metadata_type = DataServiceMeta

    def __init__(self, runtime: Runtime = RUNTIME, clock: Callable[[], float] = time.time) -> None:
        self._runtime = runtime
        self._clock = clock
        self._connector = Connector(runtime, clock)
        self._pool = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="flyte2")

    async def create(
        self,
        task_template: Any,
        output_prefix: str = "",
        inputs: dict[str, Any] | None = None,
        task_execution_metadata: Any = None,
        **_: Any,
    ) -> DataServiceMeta:
        """Ask for the service of one action; the same request again gives the same service.

        Args:
            task_template: Its `custom` says what is wanted.
            output_prefix: Not used.
            inputs: As Python values; put in where the specification names them.
            task_execution_metadata: Whose it is; None in a local run.

        Returns:
            All that later calls need.

        Raises:
            ProvisionerError: As the connector of Flyte 1.
        """
        # Both generations write a template alike; each has Python classes of its own.
        template = Template.from_flyte_idl(tasks_pb2.TaskTemplate.FromString(task_template.SerializeToString()))
        values = literals.LiteralMap({name: literal(value) for name, value in (inputs or {}).items()})
        return await self._call(
            lambda: self._connector.create(
                template, output_prefix, values, task_execution_metadata=task_execution_metadata
            )
        )

    async def get(self, resource_meta: DataServiceMeta, **_: Any) -> Resource:
        """How the service is.

        Args:
            resource_meta: What `create` returned.
        """
        found = await self._call(lambda: self._connector.get(resource_meta))
        links = [execution_pb2.TaskLog.FromString(link.SerializeToString()) for link in found.log_links or ()]
        return Resource(found.phase, found.message, links, found.outputs, found.custom_info)

    async def delete(self, resource_meta: DataServiceMeta, **_: Any) -> None:
        """Remove the service, unless the task that made it had succeeded.

        Args:
            resource_meta: What `create` returned.

        Raises:
            ProvisionerError: It cannot be removed now; Flyte calls again.
        """
        await self._call(lambda: self._delete(resource_meta))

    def _delete(self, meta: DataServiceMeta) -> None:
        content = meta.content
        if isinstance(content, Wanted):
            status = self._runtime.control().observe(content.request)
            if had_succeeded(content.request, status, self._clock()):
                log.info("service kept: its task had succeeded", stack_name=status.stack)
                return
        self._connector.delete(meta)

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def had_succeeded(request: ServiceRequest, status: Status, now: float) -> bool:
    """Whether a service's task had succeeded before its deletion was asked for.

    A service that is not ready may have been: a replica is being replaced. It
    was, if its start deadline is over, because at the deadline what has never
    been ready fails and is removed.

    Args:
        request: The service.
        status: How it is.
        now: Seconds since the epoch.
    """
    if status.phase in (Phase.FAILED, Phase.REMOVING, Phase.GONE):
        return False
    return status.phase is Phase.READY or now > request.deadline


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
        interface = NativeInterface({key: (kind, None) for key, kind in (inputs or {}).items()}, dict(self.OUTPUTS))
        super().__init__(name=name, interface=interface, task_type=TASK_TYPE, image=None, **kwargs)

    def custom_config(self, sctx: SerializationContext) -> dict[str, Any]:  # noqa: ARG002 - Flyte's signature
        """The configuration, as the connector reads it."""
        return self._custom


ConnectorRegistry.register(DataServiceConnector(), override=True)
