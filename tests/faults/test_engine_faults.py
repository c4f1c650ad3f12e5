"""An engine that hangs, and a state folder that is full, read-only or away, amid an operation.

`make faults` runs each with each of the three operations, and a state folder
that is away for a minute. Without `--whole` those of `SAMPLE` run: what hangs is
ended by a deadline, which takes as long as that.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from disturbance import Fault, amid_each, first_change, survives
from fault_server import Replica
from fault_service import begin
from fault_world import World
from flyteidl.core.execution_pb2 import TaskExecution
from points import Point
from syscalls import FileChange
from waiting import wait_for

_SECONDS = 6.0


def first_lock(point: Point) -> bool:
    return point.actor == "cli" and "/locks/" in point.effect


def second_save(point: Point) -> bool:
    """Amid the operation: something is recorded already, and more is to be."""
    return (point.actor, point.effect, point.nth) == ("cli", "rename .pulumi/stacks/data-service/STACK.json", 2)


def hangs(victim: str) -> Callable[[World, Replica], None]:
    """It is there and does nothing, until somebody kills it."""

    def begin(world: World, server: Replica) -> None:
        pids = wait_for(lambda: server.victims().get(victim), f"there is a {victim}")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    return begin


def nothing(_: World) -> None:
    """It does not end by itself."""


def refuses(number: int) -> Callable[[World, Replica], None]:
    """Nothing new can be written; what is there can be taken away unless the folder is read-only."""

    def refuse(change: FileChange) -> int:
        takes_away = change.verb in ("unlink", "rmdir") and number == errno.ENOSPC
        return 0 if takes_away else number

    def begin(world: World, _: Replica) -> None:
        world.refuse = refuse

    return begin


def accepts(world: World) -> None:
    world.refuse = lambda _: 0


def away(world: World, _: Replica) -> None:
    """As when the volume that it is on is lost: the folder that it was mounted on is not there either."""
    world.backend.rename(world.backend.with_name("aside"))


def back(world: World) -> None:
    with suppress(FileNotFoundError):  # what was written meanwhile lies below the mounted volume
        world.backend.rename(world.backend.with_name(f"below-{len(list(world.backend.parent.iterdir()))}"))
    world.backend.with_name("aside").rename(world.backend)


FAULTS = (
    Fault("the CLI hangs at its start", first_lock, hangs("cli"), 1.0, nothing),
    Fault("the CLI hangs", second_save, hangs("cli"), 1.0, nothing),
    Fault("the provider hangs", first_change, hangs("provider"), 1.0, nothing),
    Fault("the disk is full", second_save, refuses(errno.ENOSPC), _SECONDS, accepts),
    Fault("the disk fails", second_save, refuses(errno.EIO), _SECONDS, accepts),
    Fault("the state folder is away", second_save, away, _SECONDS, back),
    Fault("the state folder is away for a minute", second_save, away, 60.0, back),
)
SAMPLE = {
    ("the provider hangs", "update"),
    ("the disk is full", "create"),
    ("the state folder is away", "update"),
}


@pytest.mark.parametrize(("fault", "operation"), amid_each(FAULTS, SAMPLE))
def test_the_engine_or_its_folder_fails(
    fault: Fault, operation: str, world: World, record_property: Callable[[str, Any], None]
) -> None:
    survives(world, operation, fault, record_property)


@pytest.mark.parametrize(
    "begins",
    [
        pytest.param(first_lock, id="from the start"),
        pytest.param(second_save, id="amid the operation", marks=pytest.mark.whole),
    ],
)
def test_a_read_only_state_folder_fails_with_its_name_and_leaves_nothing(
    begins: Callable[[Point], bool], world: World, record_property: Callable[[str, Any], None]
) -> None:
    record_property("fault", f"read-only {begins.__name__}")
    service, once = world.service(), threading.Lock()

    def reached(point: Point) -> bool:
        # Once: the removal that follows comes by such a point too, maybe when the folder accepts changes again.
        if begins(point) and once.acquire(blocking=False):
            refuses(errno.EROFS)(world, world.server())
        return True

    with world.trail("create", service, reached):
        begin("create", service)
        answer = wait_for(lambda: (found := service.poll()).phase == TaskExecution.FAILED and found, "it fails", 90)
    assert "read-only file system" in answer.message
    assert str(world.backend) in answer.message
    accepts(world)
    # It ends with its execution, which asks for nothing any more.
    service.gone()
