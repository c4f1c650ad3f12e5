"""The example that is demonstrated: its files, its image, and its workflow as Flyte would register it.

The example is a user's code and no part of the package, so it is found in the
checkout; an installed package is told where it is.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flyteidl.core import tasks_pb2

from provisioner.demo.report import DemoError
from provisioner.errors import UsageError

IMAGE = "localhost/gnn:1"
PACKAGES = ("numpy",)
# Where the example's code is in the image; the workflow sets PYTHONPATH to it.
APP = "/app"
PROJECT, DOMAIN, VERSION = "flytesnacks", "development", "demo"


def find(given: Path | None = None) -> Path:
    """The folder that holds the package `gnn`.

    Args:
        given: Where the user says it is.

    Raises:
        UsageError: It is not there.
    """
    folder = given or Path(__file__).parents[2] / "examples"
    if not (folder / "gnn" / "workflow.py").is_file():
        raise UsageError(
            f"the example is not in {folder}: there is no gnn/workflow.py",
            reason="NoExample",
            hint="run the demonstration from a checkout, or name its examples folder with --examples",
        )
    return folder.resolve()


def build_image(examples: Path, progress: Callable[[str], None]) -> Path:
    """Build the example's image from this machine's own Python.

    Args:
        examples: The folder that `find` gave.
        progress: Told what is being done.

    Returns:
        The image archive.

    Raises:
        ProvisionerError: This environment lacks a package, or this machine a tool.
    """
    from provisioner.sandbox.images.python import Addition, build_python_image

    code = Addition(examples / "gnn", f"{APP}/gnn")
    return build_python_image(PACKAGES, name=IMAGE, add=[code], progress=progress)


def serialized_task(examples: Path, image: str) -> tasks_pb2.TaskTemplate:
    """The data service task of the example's workflow, as its registration would send it to Flyte.

    Args:
        examples: The folder that `find` gave.
        image: The image that the workflow shall use.

    Raises:
        DemoError: The workflow has no such task.
    """
    from flytekit.configuration import ImageConfig, SerializationSettings
    from flytekit.models.task import TaskSpec
    from flytekit.tools.translator import get_serializable

    from provisioner.flyte.task import TASK_TYPE

    # flytekit makes Ctrl-C end the process at once; here there is something to clean up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["GNN_IMAGE"] = image
    if str(examples) not in sys.path:
        sys.path.insert(0, str(examples))
    workflow = importlib.import_module("gnn.workflow")
    settings = SerializationSettings(ImageConfig(), project=PROJECT, domain=DOMAIN, version=VERSION)
    entities: OrderedDict[Any, Any] = OrderedDict()
    get_serializable(entities, settings, workflow.train_on_graph)
    for entity in entities.values():
        if isinstance(entity, TaskSpec) and entity.template.type == TASK_TYPE:
            return entity.template.to_flyte_idl()
    raise DemoError(f"{examples / 'gnn/workflow.py'} has no task of type {TASK_TYPE}")


def with_replicas(template: tasks_pb2.TaskTemplate, replicas: int) -> tasks_pb2.TaskTemplate:
    """The same task, asking for another number of replicas.

    Args:
        template: As it was serialized.
        replicas: How many.
    """
    changed = tasks_pb2.TaskTemplate()
    changed.CopyFrom(template)
    changed.custom["spec"]["replicas"] = replicas
    return changed
