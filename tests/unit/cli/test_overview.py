"""How all services are, in a few words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cli.main import main
from provisioner.cli.output import Format
from provisioner.cli.overview import line, show_all, summary
from provisioner.cluster.objects import StatefulSet
from provisioner.errors import UsageError
from provisioner.settings import Settings

CREATED = datetime(2026, 5, 1, tzinfo=UTC)
READY = StatefulSet("team", "graph", stack="graph-a", replicas=3, ready_replicas=3, updated_replicas=3, created=CREATED)
STARTING = replace(READY, name="atlas", stack="atlas-b", ready_replicas=1)
GOING = replace(READY, namespace="lab", name="old", stack="old-c", deleted=CREATED)


def test_those_that_are_not_ready_are_named_in_order() -> None:
    known = summary([READY, STARTING, GOING])
    assert line(known) == "3 services: 1 Starting, 1 Ready, 1 Removing; 7/9 replicas ready"
    assert [(row["namespace"], row["name"], row["status"]) for row in known["unready"]] == [
        ("lab", "old", "Removing"),
        ("team", "atlas", "Starting"),
    ]
    assert known["unready"][1] | {"created": None} == {
        "name": "atlas", "namespace": "team", "stack": "atlas-b", "ready": 1, "wanted": 3, "status": "Starting",
        "created": None,
    }  # fmt: skip


@pytest.mark.parametrize(("found", "said"), [([], "no services"), ([READY], "1 service: 1 Ready; 3/3 replicas ready")])
def test_none_and_one(found: list[StatefulSet], said: str) -> None:
    assert line(summary(found)) == said


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_each_service_is_counted_once(replicas: list[tuple[int, int]]) -> None:
    found = [
        replace(READY, name=f"graph-{number}", stack=f"graph-{number}", ready_replicas=ready, replicas=wanted)
        for number, (ready, wanted) in enumerate(replicas)
    ]
    known = summary(found)
    assert sum(known["phases"].values()) == known["services"] == len(found)
    assert len(known["unready"]) == known["services"] - known["phases"].get("Ready", 0)
    assert known["ready"] <= known["wanted"]


def test_a_project_without_a_name_is_refused_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--project", "team"]) == 2
    assert "provisioner list" in capsys.readouterr().err


def test_without_a_cluster_it_says_so_and_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.cluster.ClusterCache.start", lambda _: pytest.fail("a watch was begun"))
    with pytest.raises(UsageError, match="missing does not exist"):
        show_all(Settings(kubeconfig=tmp_path / "missing"), None, Format.TABLE, watch=False)
