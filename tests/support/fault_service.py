"""Data services as the tests of faults ask for them, and what must be true of one after a fault."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flyteidl.admin.agent_pb2 import Resource as Answer
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.tasks_pb2 import TaskTemplate
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable
from waiting import wait_for

from provisioner.demo.caller import Execution
from provisioner.flyte import DataServiceConfig, DataServiceTask
from provisioner.flyte.meta import DataServiceMeta, Wanted
from provisioner.identity import Identity, TaskExecutionId, for_task
from provisioner.spec import Port

if TYPE_CHECKING:
    from fault_world import World

# Within so many polls, a quarter of a second apart, what was disturbed must be as it was asked for.
MOST_POLLS = 400
POLL_SECONDS = 0.25
TASK = "flow.store"
OPERATIONS = ("create", "update", "delete")
# What an update asks for: it changes the Service and the StatefulSet, and gives the pod another template.
CHANGE = {"ports": [Port(name="main", port=9000), Port(name="more", port=9001)]}


def begin(operation: str, service: Service) -> None:
    """Ask for what an operation does.

    Args:
        operation: `create`, `update` or `delete`.
        service: Its service.
    """
    if operation == "create":
        service.create()
    elif operation == "update":
        service.create(**CHANGE)
    else:
        service.delete()


@dataclass
class Service:
    """One data service, asked for as propeller does.

    Attributes:
        world: Where.
        execution: On whose behalf.
        meta: What CreateTask answered last.
        polls: How many polls the last wait took.
    """

    world: World
    execution: Execution
    meta: bytes = b""
    polls: int = 0

    @property
    def identity(self) -> Identity:
        """Known before anybody has answered: it follows from the execution."""
        who = self.execution
        task = TaskExecutionId("p", "d", who.name, who.node, TASK, "v1", who.attempt)
        return for_task(task, namespace=who.namespace, name="store")

    @property
    def stack(self) -> str:
        return self.identity.stack

    def create(self, **change: Any) -> None:
        """CreateTask; a call that fails is repeated, as propeller does."""
        self.meta = self.world.calling(lambda caller: caller.create(template(**change), self.execution))
        content = DataServiceMeta.decode(self.meta).content
        assert isinstance(content, Wanted)
        assert content.request.identity == self.identity

    def delete(self) -> None:
        """DeleteTask; likewise."""
        self.world.calling(lambda caller: caller.delete(self.meta))

    def poll(self) -> Answer:
        return self.world.calling(lambda caller: caller.poll(self.meta))

    def converge(self) -> None:
        """Poll until it is ready, and assert that there is one of each object, no lock and no process."""
        said: list[str] = []
        for self.polls in range(1, MOST_POLLS + 1):
            answer = self.poll()
            if not said or said[-1] != answer.message:
                said.append(answer.message)
            assert answer.phase != TaskExecution.FAILED, said
            if answer.phase == TaskExecution.SUCCEEDED:
                break
            time.sleep(POLL_SECONDS)
        else:
            raise AssertionError(f"not ready after {MOST_POLLS} polls: {said}")
        stack, state = self.stack, self.world.engine.state
        checkpoint = state.checkpoint(stack)
        assert checkpoint is not None
        assert checkpoint.pending_operations == ()
        assert self.world.objects(stack) == {"Service": 1, "StatefulSet": 1}
        wait_for(lambda: not state.locks(stack), "no lock is left")
        wait_for(lambda: not self.world.engine_processes(), "no process of the engine is left")

    def vanish(self) -> None:
        """DeleteTask, and assert that nothing of it is left, in cluster, backend and machine."""
        self.delete()
        self.gone()
        # Its removal may look once more, and what it writes then must not be taken for effects of what comes next.
        wait_for(lambda: self.poll().custom_info["phase"] == "Gone", "its removal is over")

    def gone(self) -> None:
        """Assert that nothing of it is left before long."""
        left: list[str] = []
        for self.polls in range(1, MOST_POLLS + 1):
            left = self.world.left(self.identity)
            if not left:
                return
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"after {MOST_POLLS} looks there is still {left}; its status: {self.poll().message}")


def template(**change: Any) -> TaskTemplate:
    """The task of a service of one replica that starts and ends at once.

    Args:
        change: Fields of its configuration that are to be others.
    """
    fields: dict[str, Any] = {
        "name": "store",
        "image": "localhost/busybox:sandbox",
        "command": ["/bin/busybox", "nc", "-ll", "-p", "9000", "-e", "/bin/busybox", "true"],
        "ports": [Port(name="main", port=9000)],
        "replicas": 1,
        "termination_grace_period_seconds": 0,
        **change,
    }
    task = DataServiceTask(name=TASK, task_config=DataServiceConfig(**fields))
    settings = SerializationSettings(ImageConfig(), project="p", domain="d", version="v1")
    return get_serializable(OrderedDict(), settings, task).template.to_flyte_idl()
