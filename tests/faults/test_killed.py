"""SIGKILL of the server, the CLI, the provider, or all three, between every two side effects of an operation.

The points stand in `points.txt`, found by an engine and a server whose system
calls are held up (each change to a file of the backend: record, backup, lock,
history), behind a proxy that holds up each write to the API server, before it
arrives and after it was carried out. `test_every_point_is_known` finds them
anew. Each point is one case for each process that runs at it.

`make faults` runs all of them. Without `--whole` runs one case of each kind of
effect (who does what to which kind of file or object), chosen so that each
operation and each victim occurs about as often as the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_service import OPERATIONS, Service, begin
from fault_world import World
from points import VICTIMS, Case, Point, read, sample, write

POINTS = Path(__file__).with_name("points.txt")
CASES = read(POINTS.read_text()) if POINTS.exists() else []
SAMPLE = sample(CASES)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case).replace(" ", "-"), marks=() if case in SAMPLE else pytest.mark.whole)
        for case in CASES
    ],
)
def test_killed(case: Case, world: World, record_property: Callable[[str, Any], None]) -> None:
    record_property("fault", str(case))
    record_property("point", str(case.point))
    service, operation = world.service(), case.point.operation
    if operation != "create":
        service.create()
        service.converge()
    with world.killing(case, service):
        begin(operation, service)
    if operation == "delete":
        # Flyte asks again for what it was not told, and the janitor for the rest.
        service.vanish()
    else:
        service.converge()
        made = {"services": 1, "statefulsets": 1} if operation == "create" else {}
        assert world.created == made, "an object was made twice"
    record_property("polls", service.polls)
    service.vanish()


def record(world: World, operation: str, service: Service) -> list[tuple[Point, list[str]]]:
    """The side effects of an operation, each with what runs at that time."""
    found: list[tuple[Point, list[str]]] = []
    server = world.server()

    def reached(point: Point) -> bool:
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
    service = world.service()
    found = [entry for operation in OPERATIONS for entry in record(world, operation, service)]
    if request.config.getoption("record"):
        POINTS.write_text(write(found))
    assert {str(point) for point, _ in found} == {str(case.point) for case in read(POINTS.read_text())}
