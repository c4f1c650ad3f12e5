"""The end of a use: what goes, what stays, and what is nobody's business. The Leases are a set; e2e has real ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from provisioner.control.queue import Done, Kind
from provisioner.control.status import Phase, Status
from provisioner.errors import RefusedError, TransientError
from provisioner.identity import User, for_name

ALICE, STRANGER = User("p", "d", "alice", "n0"), User("other", "d", "eve", "n0")


@pytest.fixture
def end(harness) -> Callable[..., Status]:
    def end(user: User = ALICE, name: str = "graph") -> Status:
        deadline = time.monotonic() + 20
        while not (status := harness.controller.ending.end("n", name, user)).final:
            assert time.monotonic() < deadline, f"still {status}"
            time.sleep(0.005)
        return status

    return end


@pytest.fixture
def show(harness, make_request, make_snapshot):
    def show(*, shared: bool = False, **fields: object):
        request = replace(make_request(**fields), shared=shared)
        harness.cache.shown, harness.cache.stack = make_snapshot(request), request.stack
        harness.recorded[request.stack] = request
        return request

    return show


def test_its_own_is_removed(harness, show, end) -> None:
    show(owner="alice")
    assert end().phase is Phase.GONE
    assert harness.runs == [Kind.REMOVE]


def test_a_shared_one_is_removed_unless_others_use_it(harness, show, end) -> None:
    show(owner="", shared=True)
    harness.behave = lambda operation, cancellation: Done(users=("p:d:bob:n0",))
    assert end().phase is Phase.IN_USE
    harness.behave = lambda operation, cancellation: Done()
    assert end().phase is Phase.GONE
    assert harness.runs == [Kind.REMOVE, Kind.REMOVE]


@pytest.mark.parametrize("owner", ["bob", ""])
def test_what_is_another_s_is_given_back_and_stays(harness, show, end, owner: str) -> None:
    show(owner=owner)
    harness.usage.alone = False
    harness.usage.holders = {ALICE.holder}
    status = end()
    assert status.phase is Phase.IN_USE
    assert (owner or "no execution") in status.message
    assert (harness.runs, harness.usage.holders) == ([], set())


def test_what_its_owner_left_to_its_users_goes_with_the_last(harness, show, end) -> None:
    show(owner="bob")
    harness.usage.alone = True
    assert end().phase is Phase.GONE


def test_what_is_to_be_retained_stays(harness, show, end) -> None:
    show(owner="alice", deletionPolicy="Retain")
    assert end().phase is Phase.IN_USE
    assert harness.runs == []


def test_a_service_of_another_project_is_refused(harness, show, end) -> None:
    show(owner="alice")
    harness.usage.holders = {"p:d:alice:n0"}
    status = end(STRANGER)
    assert (status.phase, status.reason) == (Phase.FAILED, "NotYours")
    assert (harness.runs, harness.usage.holders) == ([], {"p:d:alice:n0"})


@pytest.mark.parametrize("which", ["task", "name"])
def test_one_that_the_cluster_does_not_show_is_found_by_its_record(harness, make_request, end, which: str) -> None:
    identity = for_name("p", "d", namespace="n", name="graph", owner="alice")
    if which == "task":
        identity = replace(identity, stack="graph")
    request = replace(make_request(), identity=identity)
    harness.recorded[identity.stack] = request
    assert end().phase is Phase.GONE
    assert harness.runs == [Kind.REMOVE]
    # A record of another project is not one's own because of its name.
    harness.recorded[identity.stack] = replace(request, identity=replace(identity, project="other"))
    assert end().reason == "NotYours"


def test_without_any_record_gone_is_what_the_api_server_says(harness, end) -> None:
    harness.left = ["Pod n/graph-0"]
    for _ in range(3):
        status = harness.controller.ending.end("n", "graph", ALICE)
    deadline = time.monotonic() + 20
    while "Pod n/graph-0" not in (status := harness.controller.ending.end("n", "graph", ALICE)).message:
        assert time.monotonic() < deadline, status
    assert status.phase is Phase.REMOVING
    harness.left = []
    assert end().phase is Phase.GONE
    assert harness.runs == []


def test_what_cannot_be_asked_now_is_raised_for_the_next_poll(harness, show, end) -> None:
    show(owner="alice")

    def away(*args: object, **kwargs: object) -> bool:
        raise TransientError("the API server is away")

    harness.usage.give_back = away
    with pytest.raises(TransientError):
        end()


def test_the_refusal_does_not_tell_whose_it_is() -> None:
    from provisioner.control.sharing import not_yours

    error = not_yours("n", "graph", STRANGER)
    assert isinstance(error, RefusedError)
    assert "'other'" in error.message


def test_all_services_of_an_execution_end(harness, show, make_request) -> None:
    first = show(owner="alice")
    harness.made = [first.identity.service]

    def ended() -> Status:
        deadline = time.monotonic() + 20
        while not (status := harness.controller.ending.end_all("n", ALICE)).final:
            assert time.monotonic() < deadline, f"still {status}"
            time.sleep(0.005)
        return status

    assert ended().phase is Phase.GONE
    assert harness.runs == [Kind.REMOVE]
    assert harness.looked == {
        "data-service-provisioner/owner": "alice",
        "data-service-provisioner/project": "p",
        "data-service-provisioner/domain": "d",
    }
    harness.made = []
    assert ended().message == "it has no service"
