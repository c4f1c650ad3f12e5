"""A controller over the real engine and cluster, and helpers to await what it must come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shim import Shim

from provisioner import toolchain
from provisioner.control.controller import Controller
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.identity import TaskExecutionId, for_task
from provisioner.settings import Settings
from provisioner.spec import parse_spec
from provisioner.toolchain import locate

PATIENCE = 120.0
IMAGE = "localhost/busybox:sandbox"
LISTEN = ["/bin/busybox", "httpd", "-f", "-p", "9000"]


@pytest.fixture
def control(settings: Settings) -> Iterator[Controller]:
    made = Controller.from_settings(settings)
    made.start()
    yield made
    assert made.stop(PATIENCE), "an operation did not end"


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Callable[..., ServiceRequest]:
    """Requests of one task execution each, told apart by the test's name and a word."""

    def make(word: str = "store", **change: Any) -> ServiceRequest:
        task = TaskExecutionId("p", "d", request.node.name, word, "graph-store", "v1", 0)
        document = {
            "image": IMAGE,
            "command": LISTEN,
            "ports": [{"name": "main", "port": 9000}],
            "replicas": 2,
            "terminationGracePeriodSeconds": 1,
            **change,
        }
        return ServiceRequest(for_task(task, namespace="default", name=word), parse_spec(document), time.time())

    return make


@pytest.fixture
def until(control: Controller) -> Callable[..., Status]:
    """Observe until a phase is reached; fails with the last status when it is not, or when it has failed."""

    def until(request: ServiceRequest, phase: Phase, controller: Controller = control) -> Status:
        deadline = time.monotonic() + PATIENCE
        while (status := controller.observe(request)).phase is not phase:
            assert time.monotonic() < deadline, f"still {status}"
            assert status.phase is not Phase.FAILED, f"failed: {status}"
            time.sleep(0.1)
        return status

    return until


@pytest.fixture
def record(settings: Settings) -> Callable[[], list[Path]]:
    """The files of the backend that belong to stacks."""

    def files() -> list[Path]:
        root = Path(settings.backend.removeprefix("file://")) / ".pulumi"
        return [path for path in root.rglob("*") if path.is_file() and path.name != "meta.yaml"]

    return files


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shim:
    """A `pulumi` in front of the real one, for every engine that this test makes."""
    made = Shim(tmp_path)
    monkeypatch.setattr(toolchain, "locate", lambda name: made.binary if name == "pulumi" else locate(name))
    return made
