"""Services of a local run: told about as they change, and looked for at the end only if they may exist."""

from __future__ import annotations

import pytest

from provisioner.control.status import Phase
from provisioner.errors import RefusedError, TransientError
from provisioner.flyte import local


class Child:
    """In the place of the process that removes what is left."""

    def __init__(self) -> None:
        self.owned: list[str] = []

    def own(self, request) -> None:
        self.owned.append(request.stack)

    def forget(self, stack: str) -> None:
        self.owned.remove(stack)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    made = Child()
    monkeypatch.setattr(local.Reaper, "start", lambda before_end: made)
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(local, "print", lambda line, file: lines.append(line), raising=False)
    return lines


def test_each_change_is_told_once(connector, template, control, child, told) -> None:
    meta = connector.create(template)
    (stack,) = child.owned
    for answer in (
        {"phase": Phase.QUEUED, "message": "waits for a worker"},
        {"phase": Phase.QUEUED, "message": "waits for a worker"},
        {"phase": Phase.READY, "message": "3 of 3 replicas are ready"},
    ):
        control.answer = answer
        connector.get(meta)
    assert told == [
        f"data service {stack}: waits for a worker",
        f"data service {stack}: 3 of 3 replicas are ready",
    ]


def test_nothing_is_told_of_a_service_in_flyte(connector, template, execution, child, told) -> None:
    connector.get(connector.create(template, task_execution_metadata=execution()))
    assert (told, child.owned) == ([], [])


def test_what_could_not_be_asked_for_is_not_looked_for(connector, template, control, child) -> None:
    control.error = TransientError("no cluster")
    with pytest.raises(TransientError, match="no cluster"):
        connector.create(template)
    assert child.owned == []
    control.error = RefusedError("it belongs to somebody else")
    assert "somebody else" in connector.get(connector.create(template)).message
    assert child.owned == []
