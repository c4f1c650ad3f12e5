"""How many engine processes each call really starts: counted by a shim in front of the engine, not by us."""

from __future__ import annotations

import time
from collections.abc import Callable

from shim import Shim

from provisioner.control.controller import Controller
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.settings import Settings


def observed(controller: Controller, request: ServiceRequest, phase: Phase) -> Status:
    deadline = time.monotonic() + 120
    while (status := controller.observe(request)).phase is not phase:
        assert time.monotonic() < deadline, f"still {status}"
        time.sleep(0.1)
    return status


def test_create_one_repeat_none_poll_none_update_one_restart_none_delete_one(
    shim: Shim, settings: Settings, make: Callable[..., ServiceRequest]
):
    controller = Controller.from_settings(settings)
    controller.start()
    first, request = make("first"), make()
    controller.ensure(first)
    observed(controller, first, Phase.READY)
    assert shim.take() == ["whoami", "up"], "the first one in a backend"
    controller.remove(first)
    observed(controller, first, Phase.GONE)
    shim.take()

    controller.ensure(request)
    observed(controller, request, Phase.READY)
    assert shim.take() == ["up"]

    controller.ensure(request)
    for _ in range(20):
        controller.observe(request)
    assert shim.take() == []

    larger = make(replicas=3)
    controller.ensure(larger)
    observed(controller, larger, Phase.READY)
    assert shim.take() == ["up"]
    assert controller.stop(60)

    # Another process knows nothing but what the caller brings; the checkpoint tells it the rest.
    restarted = Controller.from_settings(settings)
    restarted.start()
    observed(restarted, larger, Phase.READY)
    assert shim.take() == []
    restarted.remove(larger)
    observed(restarted, larger, Phase.GONE)
    assert shim.take() == ["destroy"]
    assert restarted.stop(60)
