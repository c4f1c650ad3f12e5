"""Updates while replicas serve: budgets, revisions, and a bad image that a good one follows."""

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

MISSING = "127.0.0.1:5999/missing:1"


def evict(kube: Any, pod: str) -> int:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kube.namespace}}
    try:
        kube.call("POST", f"{kube.path('Pod', pod)}/eviction", body)
    except ApiException as error:
        return int(error.status)
    return 201


def test_the_budget_blocks_an_eviction(kube, apply, until):
    apply(replicas=2, disruptionBudget={"maxUnavailable": 1}).ok()
    until(
        lambda: kube.get("PodDisruptionBudget", "graph")["status"].get("disruptionsAllowed") == 1,
        "the budget's controller has counted",
    )
    apply(replicas=2, disruptionBudget={"minAvailable": 2}).ok()
    until(
        lambda: kube.get("PodDisruptionBudget", "graph")["status"].get("disruptionsAllowed") == 0,
        "the budget's controller has counted again",
    )
    assert evict(kube, "graph-0") == 429
    apply(replicas=2).ok()
    assert kube.names("PodDisruptionBudget") == []
    assert evict(kube, "graph-0") == 201


@pytest.mark.parametrize("policy", ["Parallel", "OrderedReady"])
def test_a_bad_image_and_then_a_good_one(run, kube, apply, policy):
    good = {"replicas": 2, "podManagementPolicy": policy}
    apply(**good).ok()
    untouched = kube.uid("Pod", "graph-0")
    bad = apply(**good, image=MISSING)
    assert (bad.code, bad.row["status"]) == (1, "Failed")
    assert MISSING in bad.err
    # One at a time: the replica that is not replaced yet goes on serving.
    assert kube.uid("Pod", "graph-0") == untouched
    stuck = kube.uid("Pod", "graph-1")
    better = apply(**good, env={"FIXED": "1"})
    assert (better.code, better.row["ready"]) == (0, 2), better.err
    assert kube.uid("Pod", "graph-1") != stuck
    for pod in ("graph-0", "graph-1"):
        assert {"name": "FIXED", "value": "1"} in kube.pod(pod)["containers"][0]["env"]


def test_a_service_that_never_started_recovers_too(run, kube, apply):
    bad = apply(replicas=2, podManagementPolicy="OrderedReady", image=MISSING)
    assert bad.code == 1
    # Nobody waits for this one: the apply itself must free the rollout.
    apply("--no-wait", replicas=2, podManagementPolicy="OrderedReady").ok()
    assert apply(replicas=2, podManagementPolicy="OrderedReady").ok().row["ready"] == 2


def test_ready_means_the_new_revision(run, kube, apply):
    apply(replicas=2).ok()
    changed = apply(replicas=2, env={"NEW": "1"}).ok()
    assert changed.row["ready"] == 2
    found = kube.get("StatefulSet", "graph")["status"]
    assert found["currentRevision"] == found["updateRevision"]
    for pod in ("graph-0", "graph-1"):
        labels = kube.get("Pod", pod)["metadata"]["labels"]
        assert labels["controller-revision-hash"] == found["updateRevision"]


def test_an_update_leaves_all_but_one_replica_in_service(kube, apply, until):
    slow = ["sh", "-c", "sleep 2; exec httpd -f -p 9000"]
    apply(replicas=3, command=slow).ok()
    apply("--no-wait", replicas=3, command=slow, env={"NEW": "1"}).ok()

    def ready() -> int:
        conditions = [item for pod in kube.list("Pod") for item in pod["status"].get("conditions", ())]
        return sum(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def done() -> bool:
        counts.append(ready())
        found = kube.get("StatefulSet", "graph")["status"]
        return found.get("updatedReplicas") == 3 and found["currentRevision"] == found["updateRevision"]

    counts: list[int] = []
    until(done, "the update is through")
    assert min(counts) == 2


def test_a_cluster_that_ignores_max_unavailable_is_told_of(kube, apply):
    """The API server has its feature gate off by default, and drops the field without a word."""
    told = apply("--no-wait", maxUnavailable=2).ok()
    assert "rollingUpdate" in kube.get("StatefulSet", "graph")["spec"]["updateStrategy"]
    assert "maxUnavailable" not in kube.get("StatefulSet", "graph")["spec"]["updateStrategy"]["rollingUpdate"]
    assert "note: graph: this cluster ignores maxUnavailable: 2" in told.err


def test_rollback_brings_the_specification_before_back(run, kube, apply):
    apply(env={"VERSION": "1"}).ok()
    apply(env={"VERSION": "2"}).ok()
    revisions = run("history", "graph", "-o", "json").ok().json
    assert [revision["spec"]["env"]["VERSION"] for revision in revisions] == ["2", "1"]
    assert [revision["current"] for revision in revisions] == ["yes", ""]
    bad = apply(image=MISSING)
    assert bad.code == 1
    back = run("rollback", "graph", "-o", "json").ok()
    assert back.row["status"] == "Ready"
    assert {"name": "VERSION", "value": "2"} in kube.pod("graph-0")["containers"][0]["env"]
    run("rollback", "graph", "--to", revisions[1]["revision"][:8]).ok()
    assert {"name": "VERSION", "value": "1"} in kube.pod("graph-0")["containers"][0]["env"]
    assert run("rollback", "graph", "--to", "zzzz").code == 1
