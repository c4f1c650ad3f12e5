"""How services, plans and times are shown."""

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.cli import apply, preview, status, waiting
from provisioner.cli.options import complete_service
from provisioner.cli.output import Format
from provisioner.cli.text import age
from provisioner.cluster.objects import Container, Pod, Termination
from provisioner.control.plan import ObjectChange, Plan
from provisioner.control.status import Phase, Status
from provisioner.difference import FieldChange
from provisioner.identity import for_name
from provisioner.replacement import LostVolume, Replacement

NOW = datetime(2026, 1, 1, tzinfo=UTC)
IDENTITY = for_name("p", "d", namespace="team", name="graph")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (191, "3m11s"),
        (1200, "20m"),
        (3 * 3600 + 300, "3h5m"),
        (5 * 3600, "5h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (-5, "0s"),
    ],
)
def test_age(seconds: int, shown: str):
    assert age(NOW - timedelta(seconds=seconds), NOW) == shown


def test_no_age_without_a_time():
    assert age(None, NOW) is None


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (Pod("n", "p", phase="Running"), "Running"),
        (Pod("n", "p", phase="Running", deleted=NOW), "Terminating"),
        (Pod("n", "p", phase="Pending", containers=(Container("c", waiting_reason="ErrImagePull"),)), "ErrImagePull"),
        (Pod("n", "p", phase="Failed", reason="Evicted"), "Evicted"),
        (
            Pod("n", "p", phase="Running", containers=(Container("c", terminated=Termination(1, reason="Error")),)),
            "Error",
        ),
        (Pod("n", "p", phase="Running", containers=(Container("c", terminated=Termination(3)),)), "ExitCode:3"),
        (
            Pod("n", "p", phase="Pending", containers=(Container("i", init=True, terminated=Termination(0)),)),
            "Pending",
        ),
        (Pod("n", "p"), "Unknown"),
    ],
)
def test_a_pod_in_one_word(pod: Pod, state: str):
    assert status.pod_state(pod) == state


def test_a_plan_tells_values_reasons_and_losses(capsys: pytest.CaptureFixture[str]):
    image = FieldChange(("spec", "template", "spec", "containers", "[data-service]", "image"), "a:1", "a:2")
    plan = Plan(
        IDENTITY,
        (
            ObjectChange("replace", "StatefulSet", "graph", (image, FieldChange(("unknown.path",), None, None))),
            ObjectChange("create", "PodDisruptionBudget", "graph"),
        ),
        (Replacement("volumes[data].claim.size", "the claim templates of a StatefulSet cannot be changed"),),
        (LostVolume("data-graph-0", "1Gi", "whenDeleted is Delete"),),
        allowed=False,
    )
    preview.show([plan], Format.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"service graph (namespace team, stack {IDENTITY.stack})",
        "! StatefulSet graph: to be replaced",
        '    spec.template.spec.containers[data-service].image: "a:1" -> "a:2"',
        "    unknown.path",
        "+ PodDisruptionBudget graph: to be created",
        "! replaced, since Kubernetes cannot change in place:",
        "    volumes[data].claim.size: the claim templates of a StatefulSet cannot be changed",
        "! 1 volume lost, with the data:",
        "    data-graph-0 (1Gi): whenDeleted is Delete",
        "1 to be created, 1 to be replaced; nothing was changed yet",
        "an apply of this is refused unless it says --replace",
    ]


def test_a_plan_without_changes(capsys: pytest.CaptureFixture[str]):
    preview.show([Plan(IDENTITY)], Format.TABLE)
    assert capsys.readouterr().out.endswith("  no change\n")


def test_progress_is_one_line():
    known = Status("s", Phase.STARTING, message="first\nsecond", ready=1, wanted=3)
    assert waiting.progress_line("graph", known) == "graph: Starting (1/3 ready), first"


def test_waiting_ends_when_each_is_done_and_shows_each_change_once(capsys: pytest.CaptureFixture[str]):
    starting = Status("s", Phase.STARTING, message="pods come", wanted=1)
    answers = iter([starting, starting, Status("s", Phase.READY, message="all ready", ready=1, wanted=1)])
    found = waiting.wait({"s": lambda: next(answers)}, lambda it: it.final, {"s": float("inf")}, {"s": "graph"})
    assert found["s"].phase is Phase.READY
    assert capsys.readouterr().err == "graph: Starting (0/1 ready), pods come\ngraph: Ready, all ready\n"


def test_waiting_ends_with_its_time():
    starting = Status("s", Phase.STARTING)
    assert waiting.wait({"s": lambda: starting}, lambda it: it.final, {"s": 0.0}, {"s": "graph"}) == {"s": starting}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ([], "none"),
        (["create Service a", "create StatefulSet a", "update PodDisruptionBudget a (x)"], "2 created, 1 updated"),
    ],
)
def test_changes_are_counted(changes: list[str], shown: str):
    assert apply.counted(changes) == shown


def test_names_are_completed_from_what_the_backend_holds(tmp_path, monkeypatch: pytest.MonkeyPatch):
    from provisioner import settings

    folder = tmp_path / ".pulumi" / "stacks" / "data-service"
    folder.mkdir(parents=True)
    for name in (f"{IDENTITY.stack}.json", f"{IDENTITY.stack}.json.bak", "other-aaaaaaaaaa.json.gz", "x.txt"):
        (folder / name).touch()
    monkeypatch.setenv("PROVISIONER_BACKEND", f"file://{tmp_path}")
    settings.load.cache_clear()
    assert complete_service("gr") == ["graph", IDENTITY.stack]
    assert complete_service("") == ["graph", IDENTITY.stack, "other", "other-aaaaaaaaaa"]
    monkeypatch.setenv("PROVISIONER_BACKEND", "file:///does-not-exist")
    settings.load.cache_clear()
    assert complete_service("") == []
    settings.load.cache_clear()
