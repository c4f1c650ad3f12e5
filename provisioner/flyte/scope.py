"""Services that end with the part of a workflow that uses them, whether it succeeds or fails.

Any service ends with its execution, once the janitor has seen that. What is
here ends it at once: `data_service` when the last task of its block is over,
`scoped_workflow` when the workflow is, by the workflow's own failure node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import flytekit
from flytekit import FlyteContextManager
from flytekit.configuration import SerializationSettings
from flytekit.core.base_task import PythonTask
from flytekit.core.interface import Interface, transform_function_to_interface
from flytekit.core.node import Node
from flytekit.core.node_creation import create_node
from flytekit.core.workflow import PythonFunctionWorkflow
from flytekit.extend.backend.base_connector import AsyncConnectorExecutorMixin

from provisioner.errors import UsageError
from provisioner.flyte.cleaning import CLEANUP_TYPE, RELEASE_NAME
from provisioner.flyte.cleanup import CleanupTask
from provisioner.flyte.task import DataServiceTask


class EndServicesTask(AsyncConnectorExecutorMixin, PythonTask[None]):  # type: ignore[misc]
    """Ends all services that an execution has made, and succeeds once that is verified.

    Flyte gives a failure node the inputs of the workflow and no output of a
    task, so this one needs no name of a service.

    Args:
        name: Name of the task.
        inputs: Those of the workflow whose failure node it is; they are not looked at.
        kwargs: flytekit's own.
    """

    def __init__(self, name: str, inputs: Mapping[str, type] | None = None, **kwargs: Any) -> None:
        interface = Interface(inputs=dict(inputs or {}))
        super().__init__(name=name, task_config=None, interface=interface, task_type=CLEANUP_TYPE, **kwargs)

    def get_custom(self, settings: SerializationSettings) -> dict[str, Any]:  # noqa: ARG002 - flytekit's signature
        """What tells the connector that all are meant."""
        return {"all": True}


@contextmanager
def data_service(service: DataServiceTask, **inputs: Any) -> Iterator[Any]:
    """Inside of a workflow: a service for the tasks of a block, ended when the last of them is over.

    Args:
        service: Provides it, or attaches to one that is shared.
        inputs: The task's inputs.

    Yields:
        The service, as calling the task gives it.

    Example:
        >>> @scoped_workflow  # doctest: +SKIP
        ... def training() -> float:
        ...     with data_service(graph_store) as graph:
        ...         return train(graph=graph)
    """
    end = _end_of(service)
    state = FlyteContextManager.current_context().compilation_state
    graph = service(**inputs)
    if state is None:  # a local run: what is called has run
        try:
            yield graph
        finally:
            end(**{RELEASE_NAME: graph.name})
        return
    first = len(state.nodes)
    yield graph
    _after(state.nodes[first:], create_node(end, **{RELEASE_NAME: graph.name}))


def scoped_workflow(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Flytekit's `workflow`, whose services end with it: after its last task, and when it fails.

    Args:
        function: The workflow.
        options: flytekit's own.

    Raises:
        UsageError: It has a failure node of its own; that one calls an
            `EndServicesTask` itself.

    Example:
        >>> @scoped_workflow  # doctest: +SKIP
        ... def training(shards: int) -> float:
        ...     return train(graph=graph_store(shards=shards))
    """
    if "on_failure" in options:
        raise UsageError(
            "a scoped workflow has a failure node already",
            reason="FailureNodeTaken",
            hint="use flytekit's workflow, and call an EndServicesTask in the failure node",
        )

    def made(inner: Callable[..., Any]) -> PythonFunctionWorkflow:
        name = f"{inner.__module__}.{inner.__qualname__}.end_services"
        end = EndServicesTask(name)

        @functools.wraps(inner)
        def scoped(*arguments: Any, **keywords: Any) -> Any:
            result = inner(*arguments, **keywords)
            state = FlyteContextManager.current_context().compilation_state
            if state is None:
                end()
            else:
                _after(list(state.nodes), create_node(end))
            return result

        inputs = transform_function_to_interface(inner).inputs
        return flytekit.workflow(scoped, on_failure=EndServicesTask(f"{name}_on_failure", inputs), **options)

    return made if function is None else made(function)


def _after(nodes: list[Node], last: Node) -> None:
    for node in nodes:
        node >> last


@functools.cache
def _end_of(service: DataServiceTask) -> CleanupTask:
    return CleanupTask(name=f"{service.name}.end")
