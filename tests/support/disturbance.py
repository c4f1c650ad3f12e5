"""Something that goes wrong for a while amid an operation, and what must be true of the service meanwhile and after."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from fault_server import Replica
from fault_service import OPERATIONS, POLL_SECONDS, Service, begin
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


def first_change(point: Point) -> bool:
    """The provider is about to make its first change."""
    return point.actor == "provider" and point.effect.endswith("sent")


def amid_each(faults: Iterable[Fault], sample: Collection[tuple[str, str]]) -> list[Any]:
    """Parameters of a test: each fault amid each operation.

    Args:
        faults: What goes wrong.
        sample: Which (fault, operation) run without `--whole`.
    """
    return [
        pytest.param(
            fault,
            operation,
            id=f"{fault.name}-{operation}".replace(" ", "-"),
            marks=() if (fault.name, operation) in sample else pytest.mark.whole,
        )
        for fault in faults
        for operation in OPERATIONS
    ]


def survives(world: World, operation: str, fault: Fault, record_property: Callable[[str, Any], None]) -> None:
    """Let something go wrong amid an operation on a new service, and assert that it is as it was asked for, and goes.

    Args:
        world: Where.
        operation: `create`, `update` or `delete`.
        fault: What goes wrong.
        record_property: Told what the report says.
    """
    record_property("fault", f"{fault.name} during {operation}")
    service = world.service()
    if operation != "create":
        service.create()
        service.converge()
    disturb(world, operation, service, fault)
    if operation == "create":
        assert world.created == {"services": 1, "statefulsets": 1}, "an object was made twice"
    record_property("polls", service.polls)
    service.vanish()


def disturb(world: World, operation: str, service: Service, fault: Fault) -> None:
    """Begin an operation, let a fault begin in its midst, poll while it lasts, and let it end.

    Args:
        world: Where.
        operation: `create`, `update` or `delete`.
        service: Its service.
        fault: What goes wrong.
    """
    server, once, begun = world.server(), threading.Lock(), threading.Event()

    def reached(point: Point) -> bool:
        if fault.begins(point) and once.acquire(blocking=False):
            fault.begin(world, server)
            begun.set()
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
