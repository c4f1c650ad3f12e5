"""What a project may have, held by a server that was told so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flyteidl.core.execution_pb2 import TaskExecution

from provisioner.demo.caller import Caller
from provisioner.demo.objects import await_true
from provisioner.demo.server import ServerProcess

PATIENCE = 120.0
RULES = """
projects:
- {project: "bound-*", namespaces: [default], serviceAccounts: [default], services: 2, replicas: 3}
- {project: bound-to-none, replicas: 0}
- {project: bound-raced, services: 3, replicas: 99}
"""


@pytest.fixture
def bound(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    """A caller of a server with rules."""
    (tmp_path / "access.yaml").write_text(RULES)
    monkeypatch.setenv("PROVISIONER_ACCESS", str(tmp_path / "access.yaml"))
    process = ServerProcess(settings, tmp_path)
    process.start()
    connection = Caller(process.address)
    yield connection
    connection.close()
    assert process.stop() == 0


@pytest.fixture
def of_project(template):
    def of_project(project: str = "bound-few", **change: object):
        task = template(**change)
        task.id.project = project
        return task

    return of_project


def test_what_is_more_than_a_project_may_have_is_refused_with_its_figures(bound, of_project, execution, left) -> None:
    def refused(meta: bytes) -> str:
        answer = bound.final(meta, PATIENCE)
        assert answer.phase == TaskExecution.FAILED
        assert left(meta) == []
        return f"{answer.agent_error.code}: {answer.message}"

    first = bound.create(of_project(), execution("a"))
    bound.service(first, PATIENCE)
    more = refused(bound.create(of_project(), execution("b")))
    assert more.startswith("ProjectQuotaExceeded")
    assert "replicas: 3 allowed, 2 in use, 2 asked for" in more
    # What fits is served; what grows beyond is not, and stays as it was.
    second = bound.create(of_project(replicas=1), execution("c"))
    bound.service(second, PATIENCE)
    assert "services: 2 allowed, 2 in use, 1 asked for" in refused(bound.create(of_project(replicas=1), execution("d")))
    other = of_project("bound-to-none", replicas=1)
    assert "replicas: 0 allowed, 0 in use, 1 asked for" in refused(bound.create(other, execution("e")))
    account = bound.final(bound.create(of_project(service_account="admin"), execution("f")), PATIENCE)
    assert account.agent_error.code == "ServiceAccountNotAllowed"
    for meta in (first, second):
        bound.delete(meta)
        await_true(lambda meta=meta: left(meta) == [], PATIENCE, "nothing of it is left")
    # What has gone is free again.
    third = bound.create(of_project(replicas=3), execution("g"))
    bound.service(third, PATIENCE)
    bound.delete(third)
    await_true(lambda: left(third) == [], PATIENCE, "nothing of it is left")


def test_two_servers_asked_at_once_do_not_exceed_a_quota_together(
    bound, settings, of_project, execution, left, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    second = ServerProcess(settings, tmp_path / "second")
    second.start()  # with the same rules: the environment is the first one's
    other = Caller(second.address)
    task = of_project("bound-raced", replicas=1)
    metas = [
        (caller, caller.create(task, execution(f"{word}{number}")))
        for number in range(3)
        for word, caller in (("a", bound), ("b", other))
    ]
    answers = [caller.final(meta, PATIENCE) for caller, meta in metas]
    phases = [answer.phase for answer in answers]
    assert phases.count(TaskExecution.SUCCEEDED) == 3, [answer.message for answer in answers]
    refused = [answer for answer in answers if answer.phase == TaskExecution.FAILED]
    assert {answer.agent_error.code for answer in refused} == {"ProjectQuotaExceeded"}
    assert all("services: 3 allowed, 3 in use, 1 asked for" in answer.message for answer in refused)
    for caller, meta in metas:
        caller.delete(meta)
    await_true(lambda: all(left(meta) == [] for _, meta in metas), PATIENCE, "nothing of them is left")
    other.close()
    assert second.stop() == 0
