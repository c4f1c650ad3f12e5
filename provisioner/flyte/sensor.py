"""The community plugin's `CleanupSensor`, with its defects gone."""

from __future__ import annotations

import asyncio
from typing import Any

from flyteidl.core.execution_pb2 import TaskExecution
from flytekit.configuration import SerializationSettings
from flytekit.exceptions.user import FlyteUserException
from flytekit.extend.backend.base_connector import ConnectorRegistry
from flytekit.sensor.base_sensor import BaseSensor

from provisioner import settings as process_settings
from provisioner.flyte import execution
from provisioner.flyte.cleaning import CLEANUP_TYPE
from provisioner.flyte.meta import Cleanup, DataServiceMeta


class CleanupSensor(BaseSensor):  # type: ignore[misc]
    """The community plugin's sensor, by its signature: ends the use of a service.

    It keeps its namespace, it fails with what went wrong, and it succeeds only
    when the API server shows nothing of the service any more.

    Args:
        name: Name of the task.
        namespace: The service's namespace; the execution's when None. Another
            than the execution's is refused.
        kwargs: flytekit's own, for example `timeout`.
    """

    def __init__(self, name: str, namespace: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, task_type=CLEANUP_TYPE, **kwargs)
        self.namespace = namespace

    def get_custom(self, settings: SerializationSettings) -> dict[str, Any]:  # noqa: ARG002 - flytekit's signature
        """What the connector needs besides the inputs."""
        return {"namespace": self.namespace} if self.namespace is not None else {}

    async def poke(self, release_name: str, cleanup_data_service: bool, cluster: str) -> bool:  # noqa: ARG002
        """Look once, outside of Flyte; with Flyte the connector does it.

        Args:
            release_name: Name of the service.
            cleanup_data_service: Whether to end it; without, there is nothing to do.
            cluster: Accepted for workflows of the community plugin; it changes nothing.

        Returns:
            Whether it is over.

        Raises:
            FlyteUserException: It cannot be ended.
        """
        if not cleanup_data_service:
            return True
        namespace = self.namespace or process_settings.load().namespace
        meta = DataServiceMeta(Cleanup(namespace, release_name, execution.local_user()))
        found = await asyncio.to_thread(ConnectorRegistry.get_connector(CLEANUP_TYPE).get, meta)
        if found.phase == TaskExecution.FAILED:
            raise FlyteUserException(found.message)
        return bool(found.phase == TaskExecution.SUCCEEDED)
