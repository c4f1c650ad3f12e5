"""What flyteadmin says of executions, asked with flytekit's own client over real gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from flyteadmin import RUNNING, Admin, serving
from flyteidl.core.execution_pb2 import WorkflowExecution

from provisioner.janitor.facts import Alive, Ended, Owner, Unknown
from provisioner.janitor.owners_flyteadmin import FlyteAdmin


@pytest.fixture
def admin() -> Iterator[Admin]:
    with serving(Admin()) as made:
        yield made


@pytest.fixture
def ask(admin: Admin) -> Iterator[Callable[..., Any]]:
    readers = ThreadPoolExecutor(4)
    source = FlyteAdmin(readers, endpoint=admin.address, insecure=True)

    def ask_for(*names: str) -> Any:
        owners = [Owner("team", "development", name) for name in names]
        answers = source.ask(owners)
        return [answers[owner] for owner in owners]

    yield ask_for
    readers.shutdown()


@pytest.mark.parametrize("phase", ["UNDEFINED", "QUEUED", "RUNNING", "SUCCEEDING", "FAILING", "ABORTING"])
def test_one_that_has_not_ended_needs_its_service(admin, ask, phase):
    admin.phases = {"a": WorkflowExecution.Phase.Value(phase)}
    (answer,) = ask("a")
    assert isinstance(answer, Alive)
    assert admin.asked == ["team:development:a"]


@pytest.mark.parametrize(
    ("phase", "failed"), [("SUCCEEDED", False), ("FAILED", True), ("ABORTED", False), ("TIMED_OUT", True)]
)
def test_one_that_has_ended_needs_nothing_any_more(admin, ask, phase, failed):
    admin.phases = {"a": WorkflowExecution.Phase.Value(phase)}
    (answer,) = ask("a")
    assert isinstance(answer, Ended)
    assert (answer.at, answer.failed) == (admin.updated, failed)


def test_a_phase_that_is_not_known_yet_is_no_end(admin, ask):
    admin.phases = {"a": 99}
    (answer,) = ask("a")
    assert not isinstance(answer, Ended)


def test_every_phase_of_flyteidl_is_one_of_these():
    tried = {"UNDEFINED", "QUEUED", "RUNNING", "SUCCEEDING", "FAILING", "ABORTING"}
    assert set(WorkflowExecution.Phase.keys()) == tried | {"SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"}


def test_one_that_it_does_not_know_is_not_dead(admin, ask):
    admin.phases = {"a": RUNNING}
    known, unknown = ask("a", "b")
    assert isinstance(known, Alive)
    assert isinstance(unknown, Unknown)
    assert "right Flyte" in unknown.why


def test_none_is_dead_when_it_is_out_of_order_and_the_rest_is_not_asked_for(admin, ask):
    admin.failure = grpc.StatusCode.UNAVAILABLE
    answers = ask("a", "b", "c")
    assert all(isinstance(answer, Unknown) for answer in answers)
    assert set(admin.asked) == {"team:development:a"}


def test_none_is_dead_when_nobody_listens():
    with ThreadPoolExecutor(1) as readers:
        source = FlyteAdmin(readers, endpoint="127.0.0.1:1", insecure=True)
        owner = Owner("team", "development", "a")
        assert isinstance(source.ask([owner])[owner], Unknown)
        assert source.ask([]) == {}
