"""Two servers on two hosts and one backend: any answers any call, none harms the other, and a dead one is followed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fault_service import CHANGE, Service, template
from fault_world import World
from flyteidl.core.execution_pb2 import TaskExecution
from points import Case, Point
from waiting import wait_for

from provisioner.demo.caller import Caller
from provisioner.settings import Settings

# A host that gives no sign of life counts as dead after 20 s: none that lives is silent for so long.
QUICK = {"PROVISIONER_HEARTBEAT": "20", "PROVISIONER_CANCEL_GRACE": "2"}
AMID = Point("create", "cli", "rename .pulumi/stacks/data-service/STACK.json", 2)


@pytest.fixture(scope="module")
def world(settings_in: Callable[[Path], Settings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("replicas")
    settings = settings_in(folder)
    made = World(settings, folder, QUICK, hosts=True)
    yield made
    made.close()


@pytest.fixture
def callers(world: World) -> Iterator[tuple[Caller, Caller]]:
    """A connection to each of two servers."""
    made = Caller(world.server().address), Caller(world.spare().address)
    yield made
    for caller in made:
        caller.close()


def ready_at(caller: Caller, service: Service) -> Callable[[], bool]:
    def ready() -> bool:
        answer = caller.poll(service.meta)
        assert answer.phase != TaskExecution.FAILED, answer.message
        return bool(answer.phase == TaskExecution.SUCCEEDED)

    return ready


@pytest.mark.whole
def test_any_server_answers_any_call(world: World, callers: tuple[Caller, Caller]) -> None:
    one, other = callers
    service = world.service()
    service.meta = one.create(template(), service.execution)
    wait_for(ready_at(other, service), "ready at the one that was not asked for it", 90)
    wait_for(ready_at(one, service), "ready at the one that was", 90)
    service.meta = other.create(template(**CHANGE), service.execution)
    wait_for(ready_at(one, service), "updated", 90)
    one.delete(service.meta)
    service.gone()


def test_what_both_are_asked_for_at_once_is_made_once_and_removed_once(
    world: World, callers: tuple[Caller, Caller]
) -> None:
    service = world.service()
    with world.trail("create", service, lambda _: True), ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(caller.create, template(), service.execution) for caller in callers]
        service.meta, _ = (answer.result() for answer in asked)
        for caller in callers:
            wait_for(ready_at(caller, service), "ready at both", 90)
        assert world.created == {"services": 1, "statefulsets": 1}
        for done in [pool.submit(caller.delete, service.meta) for caller in callers]:
            done.result()
        service.gone()


@pytest.mark.whole
def test_a_live_host_keeps_its_lock_however_long_it_takes(world: World, callers: tuple[Caller, Caller]) -> None:
    service = world.service()
    held, go_on = threading.Event(), threading.Event()

    def reached(point: Point) -> bool:
        if point == AMID:
            held.set()
            assert go_on.wait(120)
        return True

    one, other = callers
    with world.trail("create", service, reached):
        service.meta = one.create(template(), service.execution)
        assert held.wait(90)
        try:
            (lock,) = world.engine.state.locks(service.stack)
            assert lock.host == world.server().host
            # The other one looks again and again: at first nothing is known of the holder, then that it lives.
            wait_for(
                lambda: "failed 4 times" in (said := other.poll(service.meta).message) and "is locked by" in said,
                "the other one has tried several times",
                90,
            )
            assert world.engine.state.locks(service.stack) == [lock]
        finally:
            go_on.set()
        wait_for(ready_at(other, service), "ready", 90)
        assert world.created == {"services": 1, "statefulsets": 1}
    service.vanish()


@pytest.mark.whole
def test_what_was_removed_at_one_is_not_made_anew_by_the_other_that_still_tries(
    world: World, callers: tuple[Caller, Caller]
) -> None:
    service = world.service()
    held, go_on = threading.Event(), threading.Event()

    def reached(point: Point) -> bool:
        if point == AMID and not held.is_set():
            held.set()
            assert go_on.wait(120)
        return True

    one, other = callers
    with world.trail("create", service, reached):
        service.meta = one.create(template(), service.execution)
        assert held.wait(90)
        wait_for(lambda: "is locked by" in other.poll(service.meta).message, "the other one has tried", 60)
        one.delete(service.meta)
        go_on.set()
        service.gone()
        # It tries again, or misses what it has applied; in both cases it finds the note.
        wait_for(
            lambda: other.poll(service.meta).phase == TaskExecution.FAILED, "the other one knows that it is gone", 90
        )
        assert world.left(service.identity) == []


def test_a_dead_host_is_followed_by_another(world: World, record_property: Callable[[str, Any], None]) -> None:
    record_property("fault", "the host dies amid create")
    service, dead = world.service(), world.server().host
    with world.killing(Case(AMID, "machine"), service):
        service.create()
    (lock,) = world.engine.state.locks(service.stack)
    assert lock.host == dead
    service.converge()
    assert world.created == {"services": 1, "statefulsets": 1}
    assert world.server().host != dead
    record_property("polls", service.polls)
    service.vanish()


def test_a_server_clears_what_its_predecessor_on_its_host_left(world: World) -> None:
    """The others see that the host lives, and would leave the lock alone for ever."""
    service, dead = world.service(), world.server().host
    with world.killing(Case(AMID, "machine"), service):
        service.create()
    (lock,) = world.engine.state.locks(service.stack)
    assert lock.host == dead
    world.start(dead)
    wait_for(lambda: world.engine.state.locks(service.stack) == [], "the lock is cleared, though nobody has called")
    service.converge()
    service.vanish()
