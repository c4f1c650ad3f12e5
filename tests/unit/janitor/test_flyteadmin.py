"""What flyteadmin says of executions, asked with flytekit's own client over real gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from flyteidl.admin import execution_pb2
from flyteidl.service import admin_pb2_grpc

from provisioner.janitor.facts import Alive, Ended, Owner, Unknown
from provisioner.janitor.owners_flyteadmin import FlyteAdmin

ENDED = datetime(2026, 5, 9, 11, 0, tzinfo=UTC)
# WorkflowExecution.Phase of flyteidl.
RUNNING, SUCCEEDED, FAILED, ABORTED, TIMED_OUT = 2, 4, 5, 6, 7


class Admin(admin_pb2_grpc.AdminServiceServicer):
    """Knows some executions by their name."""

    def __init__(self) -> None:
        self.phases: dict[str, int] = {}
        self.failure: grpc.StatusCode | None = None
        self.asked: list[str] = []

    def GetExecution(self, request: Any, context: grpc.ServicerContext) -> execution_pb2.Execution:
        self.asked.append(f"{request.id.project}:{request.id.domain}:{request.id.name}")
        if self.failure is not None:
            context.abort(self.failure, "out of order")
        if request.id.name not in self.phases:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such execution")
        answer = execution_pb2.Execution(id=request.id)
        answer.closure.phase = self.phases[request.id.name]
        answer.closure.updated_at.FromDatetime(ENDED)
        return answer


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def ask(admin: Admin) -> Iterator[Callable[..., Any]]:
    server = grpc.server(ThreadPoolExecutor(4))
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    readers = ThreadPoolExecutor(4)
    source = FlyteAdmin(readers, endpoint=f"127.0.0.1:{port}", insecure=True)

    def ask_for(*names: str) -> Any:
        owners = [Owner("team", "development", name) for name in names]
        answers = source.ask(owners)
        return [answers[owner] for owner in owners]

    yield ask_for
    server.stop(0).wait()
    readers.shutdown()


def test_each_phase_says_whether_it_still_needs_its_service(admin, ask):
    admin.phases = {"a": RUNNING, "b": SUCCEEDED, "c": FAILED, "d": ABORTED, "e": TIMED_OUT}
    running, *ended = ask(*admin.phases)
    assert isinstance(running, Alive)
    assert all(isinstance(answer, Ended) and answer.at == ENDED for answer in ended)
    assert [answer.failed for answer in ended] == [False, True, False, True]
    assert "team:development:a" in admin.asked


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
