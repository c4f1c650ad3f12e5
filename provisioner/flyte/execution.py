"""Whose service it is: from Flyte's task execution id, or from this process when it runs locally."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from typing import Any

from provisioner.errors import PermanentError
from provisioner.identity import LOCAL_PROJECT, Identity, TaskExecutionId, User, for_task

_EARLIER_ATTEMPTS = 32

_local_execution = f"local-{secrets.token_hex(4)}"
_local_nodes = itertools.count()


def task_execution(metadata: Any) -> TaskExecutionId:
    """The whole id of one attempt of one task.

    Args:
        metadata: flytekit's `TaskExecutionMetadata`.

    Raises:
        PermanentError: The request carries no task execution id. Every
            version of propeller sends it; without it a repeated request
            could not be told from a new one.
    """
    execution = metadata.task_execution_id
    node, task = execution.node_execution_id, execution.task_id
    task_id = TaskExecutionId(
        project=node.execution_id.project,
        domain=node.execution_id.domain,
        execution=node.execution_id.name,
        node=node.node_id,
        task=task.name,
        task_version=task.version,
        attempt=execution.retry_attempt,
    )
    if not task_id.execution:
        raise PermanentError(
            "the request carries no task execution id",
            reason="NoExecutionId",
            hint="send task_execution_metadata, as propeller does",
        )
    return task_id


def earlier(task: TaskExecutionId, *, namespace: str, name: str | None) -> tuple[Identity, ...]:
    """The services that earlier attempts of a task may have left.

    Each attempt has a name of its own, and propeller sends no DeleteTask for
    one whose CreateTask it has given up. What lies further back than the last
    32 attempts ends with the execution, by the janitor.

    Args:
        task: The attempt that runs now.
        namespace: Kubernetes namespace.
        name: Readable part of the service's name, or None.
    """
    first = max(0, task.attempt - _EARLIER_ATTEMPTS)
    attempts = (replace(task, attempt=attempt) for attempt in range(first, task.attempt))
    return tuple(for_task(attempt, namespace=namespace, name=name) for attempt in attempts)


def user_of(task: TaskExecutionId) -> User:
    """Who uses what one attempt of one task asks for: its node, whichever attempt.

    Args:
        task: The attempt.
    """
    return User(task.project, task.domain, task.execution, task.node)


def local_user() -> User:
    """The workflow that runs in this process, as a user of its services."""
    return User(LOCAL_PROJECT, LOCAL_PROJECT, _local_execution, "")


def local(task: str, *, namespace: str, name: str | None) -> Identity:
    """The identity of a service of a workflow that runs in this process.

    Each call gives another one, as each call of a task is a node of its own.

    Args:
        task: Name of the task.
        namespace: Kubernetes namespace.
        name: Readable part of the service's name, or None.
    """
    task_id = TaskExecutionId(
        project=LOCAL_PROJECT,
        domain=LOCAL_PROJECT,
        execution=_local_execution,
        node=f"n{next(_local_nodes)}",
        task=task,
        task_version="",
        attempt=0,
    )
    return for_task(task_id, namespace=namespace, name=name or task.rpartition(".")[2])
