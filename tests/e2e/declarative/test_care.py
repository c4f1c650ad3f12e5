"""The commands for a bad day: `doctor` with rights missing, `forget` with the cluster gone, another cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.identity import for_name


def checks(ran: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in ran.json:
        found.setdefault(row["check"], []).append(row)
    return found


@pytest.fixture
def restricted(kube: Any, settings: Any, tmp_path: Path) -> Path:
    """A kubeconfig of a service account that may look, and create nothing."""
    kube.create("ServiceAccount", "reader")
    rules = [
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list", "watch", "create"]},
        {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["*"]},
    ]
    kube.create("Role", "reader", rules=rules)
    kube.create(
        "RoleBinding",
        "reader",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        subjects=[{"kind": "ServiceAccount", "name": "reader", "namespace": kube.namespace}],
    )
    path = f"/api/v1/namespaces/{kube.namespace}/serviceaccounts/reader/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = kube.call("POST", path, body)["status"]["token"]
    document = yaml.safe_load(settings.kubeconfig.read_text())
    document["users"] = [{"name": user["name"], "user": {"token": token}} for user in document["users"]]
    kubeconfig = tmp_path / "restricted.yaml"
    kubeconfig.write_text(yaml.safe_dump(document))
    kubeconfig.chmod(0o600)
    return kubeconfig


def test_a_healthy_installation(run, kube, apply):
    apply("--no-wait").ok()
    found = run("doctor", "-n", kube.namespace, "-o", "json")
    results = checks(found)
    assert found.code == 0, found.out
    assert {row["result"] for rows in results.values() for row in rows} == {"pass"}
    assert {"pulumi", "pulumi-resource-kubernetes", "state backend", "stacks' secrets", "cluster", "clock"} <= set(
        results
    )
    assert results[f"permissions in {kube.namespace}"][0]["detail"] == "all that is needed is granted"
    assert run("doctor").out.splitlines()[0].split() == ["CHECK", "RESULT", "DETAIL"]


def test_missing_rights_are_named(run, kube, restricted, monkeypatch):
    monkeypatch.setenv("PROVISIONER_KUBECONFIG", str(restricted))
    found = run("doctor", "-n", kube.namespace, "-o", "json")
    assert found.code == 1
    rows = checks(found)[f"permissions in {kube.namespace}"]
    failed = {row["detail"]: row["fix"] for row in rows if row["result"] == "fail"}
    assert set(failed) == {"not allowed to patch, delete statefulsets of group apps"}
    assert 'apiGroups: ["apps"], resources: ["statefulsets"], verbs: ["patch", "delete"]' in next(iter(failed.values()))


def test_a_missing_namespace_a_wrong_passphrase_and_a_readable_key(run, kube, apply, settings, monkeypatch):
    apply("--no-wait").ok()
    settings.passphrase_file.chmod(0o644)
    found = checks(run("doctor", "-n", "no-such-namespace", "-o", "json"))
    assert found["namespace no-such-namespace"][0]["result"] == "fail"
    assert found["passphrase"][0]["result"] == "warn"
    monkeypatch.setenv("PROVISIONER_PASSPHRASE", "another")
    wrong = run("doctor", "-o", "json")
    assert (wrong.code, checks(wrong)["stacks' secrets"][0]["result"]) == (1, "fail")


def test_a_record_is_forgotten_only_when_nothing_is_left_or_by_force(
    run, kube, apply, monkeypatch, tmp_path, backend, settings
):
    apply("--no-wait").ok()
    refused = run("forget", "graph")
    assert (refused.code, f"StatefulSet {kube.namespace}/graph" in refused.err) == (4, True)

    # The cluster is gone: nothing listens at its address any more.
    document = yaml.safe_load(settings.kubeconfig.read_text())
    for cluster in document["clusters"]:
        cluster["cluster"]["server"] = "https://127.0.0.1:9"
    gone = tmp_path / "gone.yaml"
    gone.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("PROVISIONER_KUBECONFIG", str(gone))
    unknown = run("forget", "graph")
    assert (unknown.code, "cannot be known" in unknown.err, "--force" in unknown.err) == (4, True, True)
    run("forget", "graph", "--force").ok()
    stacks = backend / ".pulumi" / "stacks" / "data-service"
    assert not list(stacks.glob("graph-*.json"))
    assert kube.get("StatefulSet", "graph") is not None


def test_one_cluster_is_not_taken_for_another(run, kube, apply, backend):
    apply("--no-wait").ok()
    stack = for_name("flytesnacks", "development", namespace=kube.namespace, name="graph").stack
    path = backend / ".pulumi" / "stacks" / "data-service" / f"{stack}.json"
    document = json.loads(path.read_text())
    for resource in document["checkpoint"]["latest"]["resources"]:
        if resource["type"] == "data-service:index:DataService":
            assert resource["inputs"]["cluster"]
            resource["inputs"]["cluster"] = "uid-of-another-cluster"
    path.write_text(json.dumps(document))
    refused = apply(replicas=2)
    assert (refused.code, "is in another cluster" in refused.err) == (4, True)
    waiting = run("delete", "graph", "--timeout", "3s")
    assert (waiting.code, "is in another cluster" in waiting.err) == (3, True)
    assert kube.get("StatefulSet", "graph")["spec"]["replicas"] == 1
