"""An API server that is away, overloaded, cut off, slow or forgetful, or wants another token, amid an operation.

Each begins when the provider is about to make its first change, and lasts for
a while in which no poll may say that the service has failed. `make faults` runs
each with each of the three operations, and an outage of a minute. Without
`--whole` those of `SAMPLE` run; what the watch does in each case is shown in `tests/e2e/cluster`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from api_proxy import ApiProxy
from disturbance import Fault, amid_each, first_change, survives
from fault_world import World

_SECONDS = 8.0


def fault(name: str, begin: Callable[[ApiProxy], None], end: Callable[[ApiProxy], None], seconds: float) -> Fault:
    return Fault(
        name, first_change, lambda world, _: begin(world.proxy), seconds=seconds, end=lambda world: end(world.proxy)
    )


def storm(status: int, headers: dict[str, str]) -> Callable[[ApiProxy], None]:
    def begin(proxy: ApiProxy) -> None:
        proxy.answer = lambda _: (status, headers, b"overloaded")

    return begin


def calm(proxy: ApiProxy) -> None:
    proxy.answer = lambda _: None


def forgetful(proxy: ApiProxy) -> None:
    """Every watch is told that what it knows is too old."""
    expired = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}'
    headers = {"Content-Type": "application/json"}
    proxy.answer = lambda path: (410, headers, expired) if "watch=" in path else None
    proxy.cut()


def slow(proxy: ApiProxy) -> None:
    proxy.delay = 1.5


def quick(proxy: ApiProxy) -> None:
    proxy.delay = 0.0


def another_token(proxy: ApiProxy) -> None:
    proxy.token = "the-second"
    proxy.cut()


def renewed(proxy: ApiProxy) -> None:
    """As a kubelet replaces the token of a service account."""
    proxy.token_file.write_text("the-second")


class Cutting:
    """Cuts every connection, again and again."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def begin(self, proxy: ApiProxy) -> None:
        self._stop.clear()
        threading.Thread(target=self._run, args=(proxy,), daemon=True).start()

    def end(self, _: ApiProxy) -> None:
        self._stop.set()

    def _run(self, proxy: ApiProxy) -> None:
        while not self._stop.wait(0.3):
            proxy.cut()


CUTTING = Cutting()
FAULTS = (
    fault("away", ApiProxy.down, ApiProxy.up, _SECONDS),
    fault("throttling", storm(429, {"Retry-After": "1"}), calm, _SECONDS),
    fault("unavailable", storm(503, {}), calm, _SECONDS),
    fault("cutting", CUTTING.begin, CUTTING.end, _SECONDS),
    fault("slow", slow, quick, _SECONDS),
    fault("forgetful", forgetful, calm, _SECONDS),
    fault("token", another_token, renewed, _SECONDS),
    fault("away for a minute", ApiProxy.down, ApiProxy.up, 60.0),
)
SAMPLE = {("away", "create"), ("unavailable", "update"), ("cutting", "delete"), ("token", "create")}


@pytest.fixture
def mended(world: World) -> Any:
    yield
    world.proxy.token = None


@pytest.mark.parametrize(("fault", "operation"), amid_each(FAULTS, SAMPLE))
def test_the_api_server_fails(
    fault: Fault, operation: str, world: World, mended: None, record_property: Callable[[str, Any], None]
) -> None:
    survives(world, operation, fault, record_property)
