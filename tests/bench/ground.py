"""What the benches of real creates stand on: a cluster without a real node, and the task of a service on it."""

from __future__ import annotations

import os
import platform
import statistics
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from flyteidl.core import tasks_pb2
from ways import SPEC

from provisioner import logs
from provisioner.sandbox import Sandbox
from provisioner.settings import Settings
from provisioner.spec import Port


@contextmanager
def hollow_sandbox(name: str) -> Iterator[Sandbox]:
    """Say on what machine and at what load it begins, and start a cluster of hollow nodes that ends with the block.

    Args:
        name: Of the sandbox.
    """
    logs.configure(Settings(), level="error")
    print(f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}")
    print(f"load before: {os.getloadavg()[0]:.2f}", flush=True)
    sandbox = Sandbox(name)
    sandbox.down()  # what a run that was killed has left
    sandbox.up(node=False, hollow=2)
    try:
        yield sandbox
    finally:
        sandbox.down()


def template() -> tasks_pb2.TaskTemplate:
    """The task that makes the services of `SPEC`."""
    from flytekit.configuration import ImageConfig, SerializationSettings
    from flytekit.tools.translator import get_serializable

    from provisioner.flyte import DataServiceConfig, DataServiceTask

    fields = SPEC.model_dump(exclude_unset=True) | {"ports": [Port(name="grpc", port=9000)]}
    task = DataServiceTask(name="bench.store", task_config=DataServiceConfig(name="store", **fields))
    serialization = SerializationSettings(ImageConfig(), project="p", domain="d", version="v1")
    return get_serializable(OrderedDict(), serialization, task).template.to_flyte_idl()


def quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The p50 and the p99 of some durations, in milliseconds.

    Args:
        seconds: The durations.
    """
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return 1000 * cuts[49], 1000 * cuts[98]
