"""Ensure, observe and remove, with real worker threads and an engine that is told how to behave."""

from __future__ import annotations

import dataclasses
import threading
import time
from datetime import UTC, datetime

import pytest

from provisioner.cluster.objects import Condition
from provisioner.control.queue import Begun, Done, Kind, Operation, Outcome
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase
from provisioner.engine import Cancellation
from provisioner.errors import PermanentError, RefusedError, TransientError, UsageError
from provisioner.settings import Settings

NOW = 1_000_000.0


def test_create_ready_remove_gone(harness, make_request, make_snapshot, empty_snapshot):
    request = make_request()
    assert harness.controller.ensure(request).phase in (Phase.QUEUED, Phase.APPLYING, Phase.STARTING)
    harness.until(request, Phase.STARTING)
    harness.cache.shown = make_snapshot(request)
    assert harness.until(request, Phase.READY).ready == 2
    harness.cache.shown = empty_snapshot
    harness.controller.remove(request)
    harness.until(request, Phase.GONE)
    assert harness.runs == [Kind.APPLY, Kind.REMOVE]


def test_what_needs_no_engine_is_done_while_every_engine_is_at_work(harness, make_request, make_snapshot):
    go, busy = threading.Event(), [make_request() for _ in range(2)]
    busy = [
        dataclasses.replace(one, identity=dataclasses.replace(one.identity, stack=f"busy-{index}"))
        for index, one in enumerate(busy)
    ]

    def work(operation: Operation, cancellation: Cancellation) -> Outcome:
        assert go.wait(60)
        return Done()

    harness.behave = work
    try:
        for request in busy:
            harness.controller.ensure(request)
            harness.until(request, Phase.APPLYING)
        known = make_request()
        harness.begin = lambda operation: Done() if operation.intent.key == known.stack else Begun()
        harness.cache.shown = make_snapshot(known)
        harness.until(known, Phase.READY)
        assert len(harness.runs) == len(busy), "no engine had to run for it"
    finally:
        go.set()


def test_repeats_run_nothing(harness, make_request, make_snapshot):
    request = make_request()
    harness.cache.shown = make_snapshot(request)
    harness.controller.ensure(request)
    harness.until(request, Phase.READY)
    for _ in range(3):
        harness.controller.ensure(request)
        harness.controller.observe(request)
    assert harness.runs == [Kind.APPLY]


def test_observe_alone_starts_what_a_crash_lost(harness, make_request, make_snapshot):
    request = make_request()
    harness.cache.shown = make_snapshot(request)
    harness.until(request, Phase.READY)
    assert harness.runs == [Kind.APPLY]


def test_observe_after_remove_does_not_bring_it_back(harness, make_request):
    request = make_request()
    harness.controller.ensure(request)
    harness.controller.remove(request)
    harness.until(request, Phase.GONE)
    assert harness.controller.observe(request).phase is Phase.GONE
    assert harness.runs[-1] is Kind.REMOVE


def test_observe_of_an_expired_request_creates_nothing(harness, make_request):
    request = make_request(startDeadline="60s")
    harness.now = NOW + 61
    assert harness.controller.observe(request).reason == "StartDeadlineExceeded"
    harness.controller.stop(5)
    assert Kind.APPLY not in harness.runs


@pytest.mark.parametrize(("owner", "removed"), [("exec", True), ("", False)])
def test_failure_is_remembered_and_an_execution_s_service_removed(harness, make_request, owner: str, removed: bool):
    def fail(operation: Operation, cancellation: Cancellation) -> Outcome:
        if operation.intent.kind is Kind.APPLY:
            raise PermanentError("not allowed", reason="Forbidden")
        return Done()

    harness.behave = fail
    request = make_request(owner=owner)
    harness.controller.ensure(request)
    failed = harness.until(request, Phase.FAILED)
    assert (harness.workers.view(request.stack).intent.kind is Kind.REMOVE) is removed
    assert harness.controller.observe(request) == failed
    assert harness.controller.ensure(request) == failed


def test_changed_spec_after_a_failure_is_tried(harness, make_request, make_snapshot):
    def fail_first(operation: Operation, cancellation: Cancellation) -> Outcome:
        if operation.intent.kind is Kind.APPLY and operation.intent.request.spec.image == "a:1":
            raise PermanentError("no such image")
        return Done()

    harness.behave = fail_first
    bad, good = make_request(), make_request(image="a:2")
    harness.controller.ensure(bad)
    harness.until(bad, Phase.FAILED)
    harness.cache.shown = make_snapshot(good)
    harness.controller.ensure(good)
    harness.until(good, Phase.READY)


def test_transient_failures_are_repeated(harness, make_request, make_snapshot):
    def away_twice(operation: Operation, cancellation: Cancellation) -> Outcome:
        if operation.failures < 2:
            raise TransientError("away")
        return Done()

    harness.behave = away_twice
    request = make_request()
    harness.cache.shown = make_snapshot(request)
    harness.controller.ensure(request)
    harness.until(request, Phase.READY)
    assert harness.runs == [Kind.APPLY] * 3


def test_remove_cancels_a_running_apply(harness, make_request):
    begun, cancelled = threading.Event(), threading.Event()

    def wait_for_cancel(operation: Operation, cancellation: Cancellation) -> Outcome:
        if operation.intent.kind is Kind.APPLY:
            with cancellation.listen(cancelled.set):
                begun.set()
                assert cancelled.wait(20)
            raise TransientError("cancelled", reason="Cancelled")
        return Done()

    harness.behave = wait_for_cancel
    request = make_request()
    harness.controller.ensure(request)
    assert begun.wait(20)
    harness.controller.remove(request)
    harness.until(request, Phase.GONE)
    assert harness.runs == [Kind.APPLY, Kind.REMOVE]


def test_objects_taken_away_are_repaired(harness, make_request, make_snapshot, empty_snapshot):
    request = make_request()
    harness.cache.shown = make_snapshot(request)
    harness.controller.ensure(request)
    harness.until(request, Phase.READY)
    harness.cache.shown = empty_snapshot
    assert harness.controller.observe(request).phase is Phase.STARTING, "the watch may just be late"
    # The queue keeps real time; let the controller's clock be well ahead of it.
    harness.now = time.time() + 60
    request = make_request(accepted_at=harness.now)
    harness.controller.observe(request)
    deadline = time.monotonic() + 20
    while len(harness.runs) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert harness.repairs == [False, True]


def test_fault_of_an_operation_does_not_end_its_worker(harness, make_request):
    def fault(operation: Operation, cancellation: Cancellation) -> Outcome:
        if operation.intent.kind is Kind.APPLY:
            raise ZeroDivisionError
        return Done()

    harness.behave = fault
    request = make_request()
    harness.controller.ensure(request)
    assert harness.until(request, Phase.FAILED).reason == "InternalError"
    assert harness.controller.ready()


def test_attached_service_is_watched_and_never_touched(harness, make_request, make_snapshot):
    request = make_request()
    assert harness.controller.sharing.attached("n", "graph", None).reason == "NoSuchService"
    harness.recorded[request.stack] = request
    harness.cache.stack = request.stack
    harness.cache.shown = make_snapshot(request, ready=1)
    assert harness.controller.sharing.attached("n", "graph", None).phase is Phase.STARTING
    harness.cache.shown = make_snapshot(request)
    assert harness.controller.sharing.attached("n", "graph", None).phase is Phase.READY
    assert harness.runs == []


def test_attached_service_that_is_updated_is_read_again(harness, make_request, make_snapshot):
    old, new = make_request(), make_request(replicas=3)
    harness.cache.stack = old.stack
    harness.recorded[old.stack] = old
    harness.cache.shown = make_snapshot(old)
    assert harness.controller.sharing.attached("n", "graph", None).wanted == 2
    harness.recorded[old.stack] = new
    harness.cache.shown = make_snapshot(new)
    harness.controller.sharing.attached("n", "graph", None)
    assert harness.controller.sharing.attached("n", "graph", None).wanted == 3


def test_stop_cancels_what_does_not_end(harness, make_request):
    begun, cancelled = threading.Event(), threading.Event()

    def stubborn(operation: Operation, cancellation: Cancellation) -> Outcome:
        with cancellation.listen(cancelled.set):
            begun.set()
            assert cancelled.wait(20)
        raise TransientError("cancelled")

    harness.behave = stubborn
    harness.controller.ensure(make_request())
    assert begun.wait(20)
    assert harness.workers.stop(timeout=20, cancel_after=0.05)
    assert cancelled.is_set()


def test_a_namespace_that_nobody_watches_is_refused_at_once(empty_snapshot, make_request, make_harness):
    harness = make_harness(empty_snapshot, Settings(namespaces=("team-a", "team-b")))
    with pytest.raises(RefusedError, match="namespace n is not served here; team-a, team-b are") as caught:
        harness.controller.ensure(make_request())
    assert caught.value.reason == "NamespaceNotWatched"
    assert harness.workers.view(make_request().stack) is None
    watched = make_harness(empty_snapshot, Settings(namespaces=("n",)))
    assert watched.controller.ensure(make_request()).phase is Phase.QUEUED


def test_services_are_counted_by_phase(harness, make_request, make_snapshot):
    request = make_request()
    harness.controller.ensure(request)
    harness.cache.shown = make_snapshot(request)
    harness.until(request, Phase.READY)
    assert harness.controller.phases()[Phase.READY] == 1
    harness.cache.shown = make_snapshot(request, ready=1)
    assert harness.controller.phases()[Phase.STARTING] == 1


@pytest.mark.parametrize(("graces", "phase"), [("", Phase.FAILED), ("Unschedulable=never", Phase.STARTING)])
def test_a_grace_that_is_set_counts(
    graces: str, phase: Phase, empty_snapshot, make_request, make_snapshot, make_harness
):
    request = make_request(startDeadline="1h")
    no_node = Condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available", request_time(request))
    shown = make_snapshot(request, ready=0)
    pods = tuple(dataclasses.replace(pod, phase="Pending", conditions=(no_node,)) for pod in shown.pods)
    harness = make_harness(dataclasses.replace(shown, pods=pods), Settings(graces=graces))
    harness.controller.start()
    harness.controller.ensure(request)
    harness.until(request, Phase.STARTING)
    harness.now += 1000
    assert harness.controller.observe(request).phase is phase
    harness.controller.stop(10)


def request_time(request: ServiceRequest) -> datetime:
    return datetime.fromtimestamp(request.accepted_at, UTC)


def test_a_grace_that_is_none_is_told_at_the_start(empty_snapshot, make_harness):
    with pytest.raises(UsageError, match="Unschedulabel"):
        make_harness(empty_snapshot, Settings(graces="Unschedulabel=5m"))
