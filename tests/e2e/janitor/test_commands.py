"""`provisioner gc` as people and CronJobs run it: what it prints, and what its exit code says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.output import Exit


@pytest.fixture
def run(lab: Any) -> Any:
    """Run one command and give its exit code, its result and its notes."""

    def command(*words: str, **variables: str) -> tuple[int, str, str]:
        environment = {**os.environ, **lab.variables, "PROVISIONER_GC_NAMESPACES": lab.namespace, **variables}
        done = subprocess.run(
            [sys.executable, "-m", "provisioner", "gc", *words],
            env=environment,
            capture_output=True,
            check=False,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr

    return command


AT_ONCE = ("--min-age", "0s", "--grace", "0s", "--notice", "0s")


def test_the_plan_then_the_removal_then_nothing(lab: Any, flyte: Any, run: Any, tmp_path: Path) -> None:
    for execution in ("ends", "runs"):
        flyte.start(execution)
    orphan, used = lab.put("orphan", "ends"), lab.put("used", "runs")
    flyte.end("ends")

    code, out, notes = run("--dry-run", *AT_ONCE)
    heading, *rows = [line.split() for line in out.splitlines() if line]
    assert heading == ["STACK", "OWNER", "AGE", "VERDICT", "REASON"]
    shown = {row[0]: (row[1], *row[3:]) for row in rows if len(row) == 5}
    assert shown == {
        orphan.stack: ("team:development:ends", "Remove", "OwnerEnded"),
        used.stack: ("team:development:runs", "Keep", "InUse"),
    }
    assert code == Exit.NOT_READY
    assert "decided" in notes

    code, out, _ = run("--dry-run", "-o", "json", *AT_ONCE)
    document = json.loads(out)
    assert code == Exit.NOT_READY
    assert document["cluster"] == lab.origin.cluster
    assert {item["stack"]: item["action"] for item in document["decisions"]} == {
        orphan.stack: "destroy-stack",
        used.stack: "none",
    }
    assert lab.recorded(orphan)

    metrics = tmp_path / "gc.prom"
    code, out, _ = run("-o", "json", "--metrics-file", str(metrics), *AT_ONCE)
    assert code == Exit.DONE
    results = {item["stack"]: item["result"] for item in json.loads(out)["decisions"]}
    assert results == {orphan.stack: "done", used.stack: None}
    assert lab.gone(orphan)
    assert 'provisioner_gc_services{reason="InUse",verdict="Keep"} 1.0' in metrics.read_text()
    assert 'provisioner_gc_actions_total{action="destroy-stack",result="done"} 1.0' in metrics.read_text()

    code, out, _ = run(*AT_ONCE)
    assert code == Exit.DONE
    assert used.stack not in out
    assert [line.split() for line in out.splitlines()] == [["VERDICT", "REASON", "COUNT"], ["Keep", "InUse", "1"]]


def test_refused_usage_and_unreachable_have_their_codes(lab: Any, run: Any, tmp_path: Path) -> None:
    lab.put("used")
    code, _, notes = run("--dry-run", PROVISIONER_GC_CLUSTER="another-cluster")
    assert code == Exit.REFUSED
    assert "another-cluster" in notes
    code, _, notes = run("--grace", "later")
    assert code == Exit.USAGE
    assert "--grace=later: a duration" in notes
    code, _, notes = run(PROVISIONER_GC_NOTICES="1h")
    assert code == Exit.USAGE
    assert "do you mean PROVISIONER_GC_NOTICE?" in notes
    nowhere = tmp_path / "nowhere"
    assert lab.settings.kubeconfig is not None
    server = lab.client.transport.host
    nowhere.write_text(lab.settings.kubeconfig.read_text().replace(server, "https://127.0.0.1:1"))
    code, out, notes = run(PROVISIONER_KUBECONFIG=str(nowhere))
    assert code == Exit.FAILED
    assert out == ""
    assert "no connection" in notes


def test_forget_drops_the_record_alone(lab: Any, run: Any) -> None:
    who = lab.put("lost")
    before = lab.uids(who)
    code, _, notes = run("forget", who.stack, "--yes")
    assert code == Exit.DONE
    assert "its record is dropped" in notes
    assert not lab.recorded(who)
    assert lab.uids(who) == before
