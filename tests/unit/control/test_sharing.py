"""Several users of one service: who is told what, and when it goes. The Leases are a set; e2e has real ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from provisioner.control.queue import Done, Kind
from provisioner.control.status import Phase, Status
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import User

ALICE, BOB = User("p", "d", "alice", "n0"), User("p", "d", "bob", "n0")
STRANGER = User("other", "d", "eve", "n0")


def until(look: Callable[[], Status], phase: Phase) -> Status:
    deadline = time.monotonic() + 20
    while (status := look()).phase is not phase:
        assert time.monotonic() < deadline, f"still {status}"
        time.sleep(0.005)
    return status


@pytest.fixture
def shared(harness, make_request, make_snapshot):
    """A shared service that is ready, and whose removal looks at the leases as the real one does."""
    request = replace(make_request(owner=""), shared=True)
    harness.cache.shown = make_snapshot(request)
    harness.cache.stack = request.stack
    harness.recorded[request.stack] = request
    kinds = []

    def behave(operation, cancellation):
        kinds.append(operation.intent.kind)
        if operation.intent.kind is Kind.REMOVE and operation.intent.unused and harness.usage.holders:
            return Done(users=tuple(sorted(harness.usage.holders)))
        if operation.intent.kind is Kind.REMOVE:
            harness.removed.append(operation.intent.request.stack)
        return Done()

    harness.removed = []
    harness.behave = behave
    return request


def test_ready_is_said_only_once_the_service_is_held(harness, shared) -> None:
    harness.usage.error = TransientError("the API server is away")
    status = until(lambda: harness.controller.use(shared, ALICE), Phase.STARTING)
    status = until(lambda: harness.controller.use(shared, ALICE), Phase.STARTING)
    assert "regist" in status.message
    assert status.endpoints == ()
    harness.usage.error = None
    until(lambda: harness.controller.use(shared, ALICE), Phase.READY)
    assert harness.usage.holders == {"p:d:alice:n0"}


def test_a_server_that_may_not_keep_leases_says_so(harness, shared) -> None:
    harness.usage.error = PermanentError("not allowed to create leases", reason="Forbidden", hint="grant it")
    status = until(lambda: harness.controller.use(shared, ALICE), Phase.FAILED)
    assert (status.reason, status.hint) == ("Forbidden", "grant it")


def test_it_goes_with_its_last_user_and_not_before(harness, shared) -> None:
    for user in (ALICE, BOB):
        until(lambda user=user: harness.controller.use(shared, user), Phase.READY)
    harness.controller.sharing.release(shared.identity, ALICE, request=shared)
    until(lambda: harness.controller.leave(shared), Phase.IN_USE)
    assert harness.removed == []
    # Who still uses it is told as before.
    until(lambda: harness.controller.use(shared, BOB), Phase.READY)
    harness.controller.sharing.release(shared.identity, BOB, request=shared)
    deadline = time.monotonic() + 20
    while not harness.removed:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_who_comes_while_it_goes_waits_and_gets_a_new_one(harness, shared, make_snapshot, empty_snapshot) -> None:
    until(lambda: harness.controller.use(shared, ALICE), Phase.READY)
    harness.controller.sharing.release(shared.identity, ALICE, request=shared)
    deadline = time.monotonic() + 20
    while not harness.removed:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    harness.cache.shown = empty_snapshot
    until(lambda: harness.controller.use(shared, BOB), Phase.STARTING)
    harness.cache.shown = make_snapshot(shared)
    until(lambda: harness.controller.use(shared, BOB), Phase.READY)


def test_a_service_on_its_way_out_is_no_ready_one(harness, shared) -> None:
    harness.usage.closing = True
    deadline = time.monotonic() + 20
    while "way out" not in (status := harness.controller.use(shared, ALICE)).message:
        assert time.monotonic() < deadline, status
        time.sleep(0.005)
    assert status.phase is Phase.STARTING


def test_an_attached_user_holds_what_an_execution_owns(harness, make_request, make_snapshot) -> None:
    request = make_request(owner="somebody")
    harness.cache.shown, harness.cache.stack = make_snapshot(request), request.stack
    harness.recorded[request.stack] = request
    look = lambda: harness.controller.sharing.attached("n", "graph", ALICE)  # noqa: E731
    until(look, Phase.READY)
    assert harness.usage.holders == {"p:d:alice:n0"}


def test_what_no_execution_owns_needs_no_lease(harness, make_request, make_snapshot) -> None:
    request = make_request(owner="")
    harness.cache.shown, harness.cache.stack = make_snapshot(request), request.stack
    harness.recorded[request.stack] = request
    assert harness.controller.sharing.attached("n", "graph", ALICE).phase is Phase.READY
    assert harness.usage.holders == set()


def test_a_service_of_another_project_is_neither_read_nor_held(harness, shared) -> None:
    status = harness.controller.sharing.attached("n", "graph", STRANGER)
    assert (status.phase, status.reason) == (Phase.FAILED, "NotYours")
    assert "'p'" not in status.message
    assert (status.endpoints, status.wanted, harness.usage.holders) == ((), 0, set())


def test_what_is_to_be_retained_stays_without_users(harness, make_request, make_snapshot) -> None:
    request = replace(make_request(owner="", deletionPolicy="Retain"), shared=True)
    harness.cache.shown = make_snapshot(request)
    until(lambda: harness.controller.use(request, ALICE), Phase.READY)
    harness.controller.sharing.release(request.identity, ALICE, request=request)
    deadline = time.monotonic() + 20
    while harness.usage.holders:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert Kind.REMOVE not in harness.runs


def test_a_removal_that_somebody_insists_on_is_not_made_a_question(harness, shared) -> None:
    until(lambda: harness.controller.use(shared, ALICE), Phase.READY)
    harness.controller.remove(shared)
    until(lambda: harness.controller.remove(shared), Phase.GONE)
    assert harness.removed == [shared.stack]
