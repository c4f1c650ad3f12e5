"""Several operations at once: each stack is changed by one at a time, and different ones do not meet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pulumi
import pytest

from provisioner.engine import Engine
from provisioner.errors import TransientError
from provisioner.settings import Settings

if TYPE_CHECKING:
    from conftest import Cluster, Service


def test_a_stack_that_is_being_changed_is_left_alone(service: Service, settings: Settings) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        assert go_on.wait(120)
        pulumi.export("x", 1)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(service.stack.up, slow)
        assert inside.wait(120)
        other = Engine(settings).stack(service.identity.stack)
        for operation in (lambda: other.up(lambda: None), other.destroy, other.forget, other.unlock):
            with pytest.raises(TransientError, match=r"is locked by process \d+ of") as caught:
                operation()
            assert caught.value.reason == "StackLocked"
        go_on.set()
        assert first.result(120).outputs == {"x": 1}
    other.destroy()


def test_many_who_want_the_same_get_one(service: Service, cluster: Cluster) -> None:
    barrier = threading.Barrier(4)

    def until_done() -> None:
        barrier.wait()
        while True:
            try:
                service.stack.up(service.program(), deadline=120)
            except TransientError as error:
                if error.reason != "StackLocked":
                    raise
            else:
                return

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(until_done) for _ in range(4)]:
            done.result(240)
    assert set(cluster.uids(service.identity)) == {"Service", "StatefulSet"}
    assert service.stack.up(service.program()).changes.changed == ()
    assert service.stack._engine.state.locks(service.identity.stack) == []


def test_ten_at_once(make_service: Callable[..., Service], cluster: Cluster, engine: Engine) -> None:
    services = [make_service() for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        for result in pool.map(lambda service: service.stack.up(service.program(), deadline=240), services):
            assert {change.op for change in result.changes.changed} == {"create"}
    assert set(engine.state.stacks()) == {service.identity.stack for service in services}
    for service in services:
        assert set(cluster.uids(service.identity)) == {"Service", "StatefulSet"}
    with ThreadPoolExecutor(10) as pool:
        for _ in pool.map(lambda service: service.stack.destroy(deadline=240), services):
            pass
    assert list(engine.state.stacks()) == []
