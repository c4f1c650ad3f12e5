"""The same stack under plain `pulumi`: no change as it runs, and after an edit just that edit."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from provisioner.identity import for_name

ROOT = Path(__file__).parents[3]
Pulumi = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The repository's program in a folder of its own, so that a test leaves nothing in the repository."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "stacks", folder / "stacks")
    document = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    document["runtime"]["options"]["virtualenv"] = str(ROOT / ".venv")
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(document))
    return folder


def pulumi(folder: Path, exports: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Plain `pulumi`, in the environment that the checkout prints."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")}
    script = f'{exports}\nexec pulumi "$@"'
    words = ("--non-interactive", "--color", "never", *words)
    return subprocess.run(
        ["bash", "-c", script, "pulumi", *words], cwd=folder, env=inherited, capture_output=True, text=True, check=False
    )


def summary(ran: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return {
        name: int(count) for count, name in re.findall(r"^ +[+~-]{0,3} *(\d+) (?:to )?(\w+)", ran.stdout, re.MULTILINE)
    }


@pytest.mark.timeout(600)
def test_a_running_service_shows_no_change_and_an_edit_just_itself(run, kube, apply, checkout):
    fields = {
        "replicas": 1,
        "env": {"MODE": "fast", "TOKEN": {"secret": "hunter2"}},
        "volumes": [{"name": "data", "mountPath": "/data", "claim": {"size": "10Mi"}}],
        "disruptionBudget": {"maxUnavailable": 1},
        "labels": {"team": "a"},
        "ttl": "2h",
    }
    apply(**fields).ok()
    stack = for_name("flytesnacks", "development", namespace=kube.namespace, name="graph").stack
    printed = run("checkout", "graph", "--dir", str(checkout)).ok()
    path = checkout / f"Pulumi.{stack}.yaml"
    assert str(path) in printed.err
    assert "hunter2" not in path.read_text() + printed.out + printed.err

    unchanged = pulumi(checkout, printed.out, "preview", "--stack", stack, "--diff")
    assert summary(unchanged).keys() <= {"unchanged"}, unchanged.stdout

    document = yaml.safe_load(path.read_text())
    document["config"]["data-service:spec"]["env"]["MODE"] = "slow"
    path.write_text(yaml.safe_dump(document))
    edited = pulumi(checkout, printed.out, "preview", "--stack", stack, "--diff")
    counts = summary(edited)
    assert counts["update"] == 2, edited.stdout  # the component and the StatefulSet
    assert '"fast" => "slow"' in edited.stdout
    assert not {"create", "delete", "replace"} & counts.keys()
    assert "hunter2" not in edited.stdout + edited.stderr

    refused = run("checkout", "graph", "--dir", str(checkout))
    assert (refused.code, "differs from what runs" in refused.err) == (4, True)

    # What plain `pulumi` applies, the commands know of.
    assert summary(pulumi(checkout, printed.out, "up", "--yes", "--skip-preview", "--stack", stack))
    assert kube.get("StatefulSet", "graph")["spec"]["template"]["spec"]["containers"][0]["env"][2]["value"] == "slow"
    assert [item["spec"]["env"]["MODE"] for item in run("history", "graph", "-o", "json").ok().json] == ["slow", "fast"]
    run("rollback", "graph").ok()
    run("checkout", "graph", "--dir", str(checkout), "--force").ok()
    assert summary(pulumi(checkout, printed.out, "preview", "--stack", stack)).keys() <= {"unchanged"}


@pytest.mark.timeout(600)
def test_the_program_alone_from_a_file_to_its_end(run, kube, spec, checkout, environment, monkeypatch, settings):
    document = {"apiVersion": "data-service/v1", "metadata": {"name": "alone", "namespace": kube.namespace}}
    document["spec"] = spec(env={"TOKEN": {"secret": "hunter2"}})
    (checkout / "service.yaml").write_text(yaml.safe_dump(document))
    # Any service's checkout prints how to reach backend and cluster.
    run("apply", "-f", str(checkout / "service.yaml"), "-o", "json").ok()
    exports = run("checkout", "alone", "--dir", str(checkout)).ok().out
    run("delete", "alone").ok()

    assert pulumi(checkout, exports, "stack", "init", "by-hand").returncode == 0
    assert pulumi(checkout, exports, "config", "set", "--stack", "by-hand", "file", "service.yaml").returncode == 0
    counts = summary(pulumi(checkout, exports, "up", "--yes", "--skip-preview", "--stack", "by-hand"))
    assert counts == {"created": 5}
    assert kube.get("StatefulSet", "alone")["metadata"]["labels"]["data-service-provisioner/stack"] == "by-hand"
    assert run("status", "by-hand", "-o", "json").json["name"] == "alone"
    gone = pulumi(checkout, exports, "destroy", "--yes", "--skip-preview", "--stack", "by-hand")
    assert gone.returncode == 0, gone.stderr
    assert kube.get("StatefulSet", "alone") is None

    wrong = pulumi(checkout, exports, "config", "set", "--stack", "by-hand", "file", "missing.yaml")
    assert wrong.returncode == 0
    failed = pulumi(checkout, exports, "preview", "--stack", "by-hand")
    assert failed.returncode != 0
    assert "missing.yaml cannot be read" in failed.stdout + failed.stderr
    assert "Traceback" not in failed.stdout + failed.stderr


def test_checkout_needs_the_repository(run, apply, tmp_path):
    apply("--no-wait").ok()
    (tmp_path / "elsewhere").mkdir()
    wrong = run("checkout", "graph", "--dir", str(tmp_path / "elsewhere"))
    assert (wrong.code, "has no Pulumi.yaml" in wrong.err) == (2, True)
