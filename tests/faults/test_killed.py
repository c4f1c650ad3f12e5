"""SIGKILL of the server, the CLI, the provider, or all three, between every two side effects of an operation.

The points stand in `points.txt`, found by an engine and a server whose system
calls are held up (each change to a file of the backend: record, backup, lock,
history), behind a proxy that holds up each write to the API server, before it
arrives and after it was carried out. `test_every_point_is_known` finds them
anew. Each point is one case for each process that runs at it. A service lives
through three of them: in its create, its update and its delete.

`make faults` runs all of them. Without `--whole` runs one case of each kind of
effect (who does what to which kind of file or object), chosen so that each
operation and each victim occurs about as often as the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fault_service import OPERATIONS, Service, begin
from fault_world import World
from points import VICTIMS, Case, Point, lives, read, sample, write
from waiting import wait_for

POINTS = Path(__file__).with_name("points.txt")
CASES = read(POINTS.read_text()) if POINTS.exists() else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "life" in metafunc.fixturenames:
        cases = CASES if metafunc.config.getoption("whole", False) else sample(CASES)
        found = lives(cases)
        metafunc.parametrize("life", found, ids=[" then ".join(map(str, life)).replace(" ", "-") for life in found])


def test_killed(life: Sequence[Case], world: World, record_property: Callable[[str, Any], None]) -> None:
    service, kills = world.service(), {case.point.operation: case for case in life}
    for operation in OPERATIONS:
        case = kills.get(operation)
        if case is None:
            begin(operation, service)
        else:
            record_property("fault", str(case))
            with world.killing(case, service):
                begin(operation, service)
        if operation == "delete":
            # Flyte asks again for what it was not told, and the janitor for the rest.
            service.vanish()
        else:
            service.converge()
        if case is not None:
            made = {"services": 1, "statefulsets": 1} if operation == "create" else {}
            assert world.created == made, "an object was made twice"
            record_property("survived", str(case))
            record_property("polls", service.polls)


def record(world: World, operation: str, service: Service, settle: float) -> list[tuple[Point, list[str]]]:
    """The side effects of an operation, each with what runs at that time."""
    found: list[tuple[Point, list[str]]] = []
    server = world.server()

    def reached(point: Point) -> bool:
        # A provider that has been told to end may be there still; it is nobody that can be killed here.
        time.sleep(settle)
        if (point.operation, point.effect) == ("delete", "DELETE statefulsets done"):
            # A removal looks again while pods are still there, and what it writes then is no point of its own.
            identity = service.identity
            only = [f"Service {identity.namespace}/{identity.service}"]
            wait_for(lambda: world.client.remaining(identity) == only, "its StatefulSet and pods are gone")
        there = server.victims()
        found.append((point, [victim for victim in VICTIMS if victim in there]))
        return True

    with world.trail(operation, service, reached):
        begin(operation, service)
        if operation == "delete":
            service.gone()
        else:
            service.converge()
    return found


def test_every_point_is_known(world: World, request: pytest.FixtureRequest) -> None:
    service, anew = world.service(), request.config.getoption("record", False)
    settle = 0.3 if anew else 0.0
    found = [entry for operation in OPERATIONS for entry in record(world, operation, service, settle)]
    if anew:
        POINTS.write_text(write(found))
    assert {str(point) for point, _ in found} == {str(case.point) for case in read(POINTS.read_text())}
