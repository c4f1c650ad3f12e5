"""Tasks that end the use of a data service, and one that begins it: for workflows that share services.

A service of an execution ends with it in any case. These are for workflows
that go on after they need it no more, and for services that are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from flytekit.configuration import SerializationSettings
from flytekit.core.base_task import PythonTask
from flytekit.core.interface import Interface
from flytekit.extend.backend.base_connector import AsyncConnectorExecutorMixin

from provisioner.errors import Problem, SpecError
from provisioner.flyte import jobs
from provisioner.flyte.cleaning import CLEANUP_TYPE, JOB_NAME, RELEASE_NAME
from provisioner.flyte.config import DataServiceConfig
from provisioner.flyte.task import DataServiceTask

JobKind = Literal["Job", "PyTorchJob", "TFJob", "MPIJob"]


class CleanupTask(AsyncConnectorExecutorMixin, PythonTask[None]):  # type: ignore[misc]
    """Ends an execution's use of a data service; succeeds once that is verified.

    A service of this execution is removed; so is a shared one that nobody else
    uses. Any other is given back and stays. It runs in the connector: no pod
    of yours needs rights in the cluster.

    Its input is `release_name`, the service's name; with `wait_for` also
    `job_name`, the job that must have ended before.

    Args:
        name: Name of the task.
        wait_for: Kind of a job that is waited for.
        kwargs: flytekit's own, for example `timeout` in `metadata`.

    Raises:
        SpecError: There is no such kind of job.

    Example:
        >>> cleanup = CleanupTask(name="cleanup", wait_for="TFJob")
        >>> sorted(cleanup.python_interface.inputs)
        ['job_name', 'release_name']
    """

    def __init__(self, name: str, wait_for: JobKind | None = None, **kwargs: Any) -> None:
        if wait_for is not None and wait_for not in jobs.KINDS:
            problem = Problem("wait_for", str(wait_for), f"one of {', '.join(jobs.KINDS)}")
            raise SpecError([problem], source=f"task {name}")
        self._wait_for = wait_for
        inputs = dict.fromkeys([RELEASE_NAME] if wait_for is None else [RELEASE_NAME, JOB_NAME], str)
        super().__init__(
            name=name, task_config=None, interface=Interface(inputs=inputs), task_type=CLEANUP_TYPE, **kwargs
        )

    def get_custom(self, settings: SerializationSettings) -> dict[str, Any]:  # noqa: ARG002 - flytekit's signature
        """What the connector needs besides the inputs."""
        return {"waitFor": self._wait_for} if self._wait_for is not None else {}


def attach(service: str, *, name: str | None = None, inputs: Mapping[str, type] | None = None) -> DataServiceTask:
    """A task that uses a service that exists already.

    It waits until the service is ready, and holds it for the execution: until
    that ends or releases it, nobody else's end removes the service.

    Args:
        service: Name of the service.
        name: Name of the task.
        inputs: Names and types of inputs, if any; they order the task.

    Example:
        >>> attach("features").name
        'attach-features'
    """
    config = DataServiceConfig(existing_release_name=service)
    return DataServiceTask(name=name or f"attach-{service}", task_config=config, inputs=inputs)


def release(*, name: str = "release-data-service", wait_for: JobKind | None = None, **kwargs: Any) -> CleanupTask:
    """A task that gives a service back, so that it goes with its last user.

    Args:
        name: Name of the task.
        wait_for: Kind of a job that is waited for.
        kwargs: flytekit's own.

    Example:
        >>> release(wait_for="PyTorchJob").name
        'release-data-service'
    """
    return CleanupTask(name=name, wait_for=wait_for, **kwargs)
