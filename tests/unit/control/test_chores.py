"""Chores: each key one at a time, outcomes remembered, and what was insisted on repeated until it is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from provisioner.control.chores import Chores
from provisioner.control.queue import Backoff
from provisioner.errors import PermanentError, TransientError


@pytest.fixture
def chores() -> Iterator[Chores]:
    made = Chores(Backoff(first=0.01, cap=0.02))
    yield made
    made.stop()


def until(condition: Callable[[], object]) -> object:
    deadline = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


def test_the_first_who_asks_has_it_begun_and_a_later_one_has_the_outcome(chores: Chores) -> None:
    runs: list[int] = []

    def run() -> str:
        runs.append(1)
        return "done"

    def ask() -> object:
        return chores.ask("a", run, fresh=lambda value: 60.0 if value == "done" else 0.0)

    assert ask() is None or runs
    assert until(ask).value == "done"
    assert ask().value == "done"
    assert runs == [1]


def test_what_is_not_fresh_is_done_again_while_the_old_outcome_is_told(chores: Chores) -> None:
    values = iter(range(1000))
    ask = lambda: chores.ask("a", lambda: next(values), fresh=lambda value: 0.0)  # noqa: E731
    until(ask)
    assert until(lambda: (found := ask()) is not None and found.value >= 3)


def test_a_failure_is_an_outcome_and_is_tried_again(chores: Chores) -> None:
    errors = [TransientError("not now"), TransientError("not yet")]

    def run() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    ask = lambda: chores.ask("a", run, fresh=lambda value: 60.0)  # noqa: E731
    assert until(lambda: (found := ask()) is not None and found.error)
    assert until(lambda: (found := ask()) is not None and found.value == "done")


def test_a_fault_of_the_program_ends_nothing_else(chores: Chores) -> None:
    def run() -> None:
        raise KeyError("bug")

    found = until(lambda: chores.ask("a", run, fresh=lambda value: 60.0))
    assert found.error.reason == "InternalError"
    assert until(lambda: chores.ask("b", lambda: 1, fresh=lambda value: 60.0)).value == 1


def test_what_was_insisted_on_is_repeated_until_it_succeeds(chores: Chores) -> None:
    done = threading.Event()
    left = [1, 2, 3]

    def run() -> None:
        if left:
            left.pop()
            raise TransientError("not now")
        done.set()

    chores.insist("a", run)
    assert done.wait(20)


def test_what_cannot_succeed_is_not_repeated(chores: Chores) -> None:
    runs = []

    def run() -> None:
        runs.append(1)
        raise PermanentError("never")

    chores.insist("a", run)
    until(lambda: runs)
    # Another key's chore gets the thread, and more time than a repetition would need.
    until(lambda: chores.ask("b", lambda: time.sleep(0.1) or "done", fresh=lambda value: 60.0))
    assert runs == [1]


def test_insisting_waits_for_what_runs_and_drops_its_outcome(chores: Chores) -> None:
    begun, may_end, order = threading.Event(), threading.Event(), []

    def take() -> str:
        begun.set()
        may_end.wait(20)
        order.append("take")
        return "held"

    assert chores.ask("a", take, fresh=lambda value: 60.0) is None
    assert begun.wait(20)
    chores.insist("a", lambda: order.append("give back"))
    assert order == []
    may_end.set()
    until(lambda: order == ["take", "give back"])
    again = until(lambda: chores.ask("a", lambda: order.append("again") or "anew", fresh=lambda value: 60.0))
    assert again.value == "anew"
