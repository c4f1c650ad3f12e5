"""Each example of the repository runs as it stands, and does what it says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
Applied = Callable[[str], Any]


@pytest.fixture
def applied(run: Any) -> Applied:
    """Applies an example; a preview of what runs shows no change."""

    def applied(name: str) -> Any:
        path = str(EXAMPLES / f"{name}.yaml")
        rows = run("apply", "-f", path, "-o", "json").ok().json
        assert {row["status"] for row in rows} == {"Ready"}
        assert run("preview", "-f", path).code == 0
        return rows

    return applied


def fetch(kube: Any, pod: str, url: str) -> str:
    return str(kube.exec(pod, f"wget -q -O - {url} 2>&1 || true"))


def test_01_smallest(run, kube, applied):
    applied("01-smallest")
    assert kube.exec("smallest-0", "nc 127.0.0.1 9000 </dev/null && echo open") == "open\n"
    run("delete", "smallest").ok()
    assert kube.names("StatefulSet", "Service", "Pod") == []


def test_02_shards(run, kube, applied):
    (row,) = applied("02-shards")
    assert row["ready"] == 3
    for ordinal in range(3):
        host = f"shards-{ordinal}.shards.{kube.namespace}.svc.cluster.local"
        assert fetch(kube, "shards-0", f"http://{host}:9000/shard") == f"papers-{ordinal}\n"
    assert "shards-2 | serving shard 2 of papers" in run("logs", "shards").ok().out
    uid = kube.uid("Pod", "shards-0")
    assert run("scale", "shards", "--replicas", "4", "-o", "json").ok().row["ready"] == 4
    assert kube.uid("Pod", "shards-0") == uid


def test_03_volumes(run, kube, applied):
    applied("03-volumes")
    assert "/cache tmpfs" in kube.exec("volumes-0", "cat /proc/mounts")
    run("delete", "volumes").ok()
    applied("03-volumes")
    assert len(kube.exec("volumes-0", "cat /data/starts").splitlines()) == 2
    run("delete", "volumes", "--volumes").ok()
    assert kube.names("PersistentVolumeClaim") == []


def test_04_secrets(run, kube, applied):
    kube.create("Secret", "store-tokens", stringData={"read": "any"})
    applied("04-secrets")
    assert "401" in fetch(kube, "secrets-0", "http://127.0.0.1:9000/etc/hostname")
    allowed = fetch(kube, "secrets-0", "http://reader:change-me@127.0.0.1:9000/etc/hostname")
    assert allowed == "secrets-0\n"
    assert "read token of 3 characters" in run("logs", "secrets").ok().out


def test_05_placement(run, kube, applied):
    (row,) = applied("05-placement")
    assert row["ready"] == 2
    assert kube.get("PodDisruptionBudget", "placement")["spec"]["maxUnavailable"] == 1
    pod = kube.pod("placement-1")
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert {"key": "dedicated", "operator": "Equal", "value": "graphs", "effect": "NoSchedule"} in pod["tolerations"]


def test_06_full(run, kube, applied, until):
    rows = applied("06-full")
    assert [(row["name"], row["ready"]) for row in rows] == [("features", 1), ("graph", 2)]
    listed = run("list", "-n", kube.namespace, "--project", "graphs", "-o", "json").ok().json
    assert [item["name"] for item in listed] == ["features", "graph"]
    options = ("--project", "graphs", "--domain", "development")
    kube.patch("StatefulSet", "features", {"spec": {"replicas": 2}}, "/scale")
    until(lambda: run("status", "features", *options).code == 0, "it is ready with two replicas")
    assert [item["ignored"] for item in run("drift", "features", *options, "-o", "json").ok().json] == [True]
    kube.patch("StatefulSet", "graph", {"spec": {"replicas": 1}}, "/scale")
    until(lambda: kube.get("StatefulSet", "graph")["status"].get("replicas") == 1, "a replica is gone")
    path = str(EXAMPLES / "06-full.yaml")
    again = run("apply", "-f", path, "-o", "json").ok().json
    assert {row["name"]: row["ready"] for row in again} == {"features": 2, "graph": 2}
    run("delete", "-f", path).ok()
    assert kube.names("StatefulSet", "Service", "PodDisruptionBudget", "Pod") == []


def test_there_is_a_test_for_each():
    tested = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_0")}
    assert tested == {path.stem for path in EXAMPLES.glob("*.yaml")}
