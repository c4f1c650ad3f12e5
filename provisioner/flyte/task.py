"""The task that a workflow uses: it provides a data service, and its output tells where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from flytekit.configuration import SerializationSettings
from flytekit.core.base_task import PythonTask
from flytekit.core.interface import Interface
from flytekit.extend.backend.base_connector import AsyncConnectorExecutorMixin
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from provisioner.flyte import inputs as task_inputs
from provisioner.flyte.service import DataService

TASK_TYPE = "dataservicetask"


class Config(Protocol):
    """A configuration that knows its `custom` document."""

    def custom(self) -> dict[str, Any]:
        """The `custom` field of the task template."""


class DataServiceTask(AsyncConnectorExecutorMixin, PythonTask[Config]):  # type: ignore[misc]
    """Provides a data service; succeeds once each of its replicas is ready.

    The output is one `DataService`, which the next task takes as its input.

    Args:
        name: Name of the task.
        task_config: A `DataServiceConfig`.
        inputs: Names and types of inputs, if any. They order the task after
            what produces them, and may fill the configuration: a value
            `"{{.inputs.shards}}"` becomes the input `shards` of the execution.
        kwargs: flytekit's own, for example `timeout` or `retries` in `metadata`.

    Raises:
        SpecError: With everything that is wrong with the configuration.

    Example:
        >>> store = DataServiceTask(
        ...     name="graph-store",
        ...     task_config=DataServiceConfig(image="localhost/store:1", ports=[Port(name="main", port=9000)]),
        ... )  # doctest: +SKIP
        >>> sized = DataServiceTask(
        ...     name="sized-store",
        ...     task_config=DataServiceConfig(
        ...         image="localhost/store:1",
        ...         ports=[Port(name="main", port=9000)],
        ...         replicas="{{.inputs.shards}}",
        ...         env={"GRAPH": "s3://graphs/{{.inputs.graph}}"},
        ...     ),
        ...     inputs={"shards": int, "graph": str},
        ... )  # doctest: +SKIP
    """

    OUTPUTS: ClassVar[Mapping[str, type]] = {"service": DataService}

    def __init__(
        self, name: str, task_config: Config | None, inputs: Mapping[str, type] | None = None, **kwargs: Any
    ) -> None:
        # What is wrong with it is said when the workflow is loaded, not when it runs.
        custom = task_config.custom() if task_config else {}
        task_inputs.check(custom, tuple(inputs or ()), source=f"task_config of {name}")
        super().__init__(
            name=name,
            task_config=task_config,
            interface=Interface(inputs=dict(inputs) if inputs else None, outputs=dict(self.OUTPUTS)),
            task_type=TASK_TYPE,
            **kwargs,
        )

    def get_custom(self, settings: SerializationSettings) -> dict[str, Any]:  # noqa: ARG002 - flytekit's signature
        """The configuration as a protobuf Struct gives it, in which every number is a float."""
        struct = Struct()
        struct.update(self.task_config.custom())
        return dict(json_format.MessageToDict(struct))
