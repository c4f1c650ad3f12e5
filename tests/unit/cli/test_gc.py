"""What `provisioner gc` prints, and the file of its metrics."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.cli import gc_report
from provisioner.errors import UsageError
from provisioner.janitor import metrics
from provisioner.janitor.decision import Action, Decision, Plan, Verdict
from provisioner.janitor.outcome import Outcome, Report, Result

NOW = datetime(2026, 5, 9, 12, 0, tzinfo=UTC)
EXECUTION = "f3a9c01d2e4f5a6b7c8d"


def decision(
    stack: str = "graph-r5z2gz5jzl",
    verdict: Verdict = Verdict.REMOVE,
    reason: str = "OwnerEnded",
    action: Action = Action.DESTROY,
    owner: str = "team:production:f3a9",
) -> Decision:
    return Decision(stack, owner, timedelta(hours=3, minutes=12), verdict, reason, f"why {stack}", action)


def report(*decisions: Decision, result: Result | None = None, message: str = "", **plan: str) -> Report:
    outcomes = tuple(Outcome(item, result, message) for item in decisions) if result is not None else ()
    return Report(Plan("uid", decisions, **plan), NOW, 1.5, dry_run=result is None, outcomes=outcomes)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]):
    def lines(found: Report) -> list[str]:
        gc_report.print_tables(found)
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]):
    def lines(found: Report) -> list[str]:
        gc_report.explain(found)
        return capsys.readouterr().err.splitlines()

    return lines


def test_the_owner_stands_beside_its_stack_where_all_of_it_fits(printed):
    heading, row, *_ = printed(report(decision()))
    assert heading.split() == ["STACK", "OWNER", "AGE", "VERDICT", "REASON"]
    assert row.split() == ["graph-r5z2gz5jzl", "team:production:f3a9", "3h12m", "Remove", "OwnerEnded"]


def test_long_names_are_never_cut_and_fit_80_columns(printed):
    stack, owner = f"{EXECUTION}-n0-5codyou3o3", f"team:production:{EXECUTION}"
    heading, row, beneath, *rest = printed(report(decision(stack, owner=owner), result=Result.DONE))
    assert heading.split() == ["STACK", "AGE", "VERDICT", "REASON", "RESULT"]
    assert row.split() == [stack, "3h12m", "Remove", "OwnerEnded", "done"]
    assert beneath.split() == ["owner", owner]
    assert max(map(len, (heading, row, beneath, *rest))) <= 80


def test_what_is_in_use_is_shown_in_a_dry_run_alone(printed):
    used = decision("used", Verdict.KEEP, "InUse", Action.NONE)
    assert any(line.startswith("used ") for line in printed(report(used)))
    lines = printed(report(used, result=Result.DONE))
    assert [line.split() for line in lines] == [["VERDICT", "REASON", "COUNT"], ["Keep", "InUse", "1"]]


def test_a_thousand_of_one_kind_are_not_a_thousand_lines(explained):
    unknown = [decision(f"s-{number}", Verdict.KEEP, "OwnerUnknown", Action.NONE) for number in range(1000)]
    busy = decision("busy", Verdict.KEEP, "OperationRunning", Action.NONE)
    lines = explained(report(*unknown, busy))
    assert len(lines) == 7
    assert "OwnerUnknown: and 995 more; `-o json` has them all" in lines
    assert "busy: OperationRunning: why busy" in lines


def test_a_refusal_and_the_brake_say_what_to_do(explained):
    assert explained(report(refused="it is another cluster")) == [
        "refused: it is another cluster; nothing was done",
        "hint: check the kubeconfig's context, and PROVISIONER_GC_CLUSTER",
    ]
    lines = explained(report(decision(verdict=Verdict.POSTPONE, reason="Brake"), brake="9 of 10"))
    assert lines[0] == "brake: 9 of 10"
    assert "--max-share" in lines[1]
    assert len(lines) == 2


def test_failures_are_said_with_their_reason_and_what_to_do(explained):
    failed = Outcome(decision(), Result.FAILED, "no connection", "is the cluster up?")
    lines = explained(Report(Plan("uid", (failed.decision,)), NOW, 1.5, outcomes=(failed,)))
    assert lines == ["graph-r5z2gz5jzl: destroy-stack failed: no connection", "hint: is the cluster up?"]


def test_a_notice_says_when_the_first_goes(explained):
    dues = (NOW + timedelta(hours=2), NOW + timedelta(minutes=10))
    found = [replace(decision(verdict=Verdict.NOTICE, action=Action.NOTIFY), due=due) for due in dues]
    assert explained(report(*found)) == ["2 on notice: the first goes in a sweep after 2026-05-09T12:10:00+00:00"]


def test_the_document_is_one_for_all_who_read_it():
    found = gc_report.document(report(decision(), result=Result.DONE))
    assert json.loads(json.dumps(found)) == found
    (item,) = found["decisions"]
    assert (item["stack"], item["ageSeconds"], item["result"]) == ("graph-r5z2gz5jzl", 11520, "done")
    assert found["summary"] == [{"verdict": "Remove", "reason": "OwnerEnded", "count": 1}]


@pytest.fixture
def no_success_yet():
    metrics.LAST_SUCCESS.set(0)
    yield
    metrics.LAST_SUCCESS.set(0)


@pytest.mark.usefixtures("no_success_yet")
def test_the_last_success_outlives_the_process_that_wrote_it(tmp_path: Path):
    def last() -> float:
        found = re.search(r"^provisioner_gc_last_success\S* (\S+)$", path.read_text(), re.MULTILINE)
        assert found is not None
        return float(found[1])

    path = tmp_path / "gc.prom"
    metrics.LAST_SUCCESS.set(1.7e9)
    metrics.write(path)
    metrics.LAST_SUCCESS.set(0)  # the next process, which did not succeed
    metrics.write(path)
    assert last() == 1.7e9
    metrics.LAST_SUCCESS.set(1.8e9)
    metrics.write(path)
    assert last() == 1.8e9


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match="nowhere"):
        metrics.write(tmp_path / "nowhere" / "gc.prom")
