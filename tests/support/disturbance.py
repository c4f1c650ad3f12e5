"""Something that goes wrong for a while amid an operation, and what must be true of the service meanwhile and after."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fault_server import Replica
from fault_service import POLL_SECONDS, Service, begin
from fault_world import REACH_SECONDS, World
from flyteidl.core.execution_pb2 import TaskExecution
from points import Point


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong for a while.

    Attributes:
        name: Names it.
        begins: Whether it begins at a point.
        begin: Called then, with the server that carries the operation out.
        seconds: How long it lasts.
        end: Called afterwards.
    """

    name: str
    begins: Callable[[Point], bool]
    begin: Callable[[World, Replica], None]
    seconds: float
    end: Callable[[World], None]


def disturb(world: World, operation: str, service: Service, fault: Fault) -> None:
    """Begin an operation, let a fault begin in its midst, poll while it lasts, and let it end.

    Args:
        world: Where.
        operation: `create`, `update` or `delete`.
        service: Its service.
        fault: What goes wrong.
    """
    server, begun = world.server(), threading.Event()

    def reached(point: Point) -> bool:
        if fault.begins(point) and not begun.is_set():
            begun.set()
            fault.begin(world, server)
        return True

    with world.trail(operation, service, reached):
        begin(operation, service)
        assert begun.wait(REACH_SECONDS), "no operation came so far"
        end = time.monotonic() + fault.seconds
        while time.monotonic() < end:
            answer = service.poll()
            assert answer.phase != TaskExecution.FAILED or operation == "delete", answer.message
            time.sleep(POLL_SECONDS)
        fault.end(world)
        if operation == "delete":
            service.gone()
        else:
            service.converge()
