"""What others change: shown field by field, put right on demand or by policy, or left to them."""

from typing import Any


def paths(ran: Any) -> dict[str, Any]:
    return {f"{item['object']} {item['path']}": item for item in ran.json}


def test_changes_by_hand_are_shown_and_put_right(run, kube, apply):
    apply(replicas=2, labels={"team": "a"}, disruptionBudget={"maxUnavailable": 1}).ok()
    assert run("drift", "graph", "-o", "json").ok().json == []

    kube.patch("StatefulSet", "graph", {"spec": {"replicas": 3}})
    kube.patch("Service", "graph", {"metadata": {"labels": {"team": "b", "note": "mine"}}})
    kube.delete("PodDisruptionBudget", "graph")
    found = run("drift", "graph", "-o", "json")
    assert found.code == 3
    seen = paths(found)
    assert set(seen) == {
        "StatefulSet/graph spec.replicas",
        "Service/graph metadata.labels.team",
        "Service/graph metadata.labels.note",
        "PodDisruptionBudget/graph (the object itself)",
    }
    replicas = seen["StatefulSet/graph spec.replicas"]
    assert (replicas["applied"], replicas["found"], replicas["manager"]) == (2, 3, "by-hand")
    table = run("drift", "graph").out.splitlines()
    assert table[0].split() == ["OBJECT", "FIELD", "APPLIED", "FOUND", "BY"]

    # An apply of what was applied looks at nothing: the policy is to report.
    apply(replicas=2, labels={"team": "a"}, disruptionBudget={"maxUnavailable": 1})
    assert kube.get("StatefulSet", "graph")["spec"]["replicas"] == 3

    corrected = run("drift", "graph", "--correct")
    assert corrected.code == 0, corrected.err
    assert "specification says nothing of it: Service/graph metadata.labels.note" in corrected.err
    assert kube.get("StatefulSet", "graph")["spec"]["replicas"] == 2
    assert kube.get("Service", "graph")["metadata"]["labels"]["team"] == "a"
    assert kube.get("PodDisruptionBudget", "graph") is not None


def test_the_policy_correct_puts_it_right_with_the_next_apply(run, kube, apply):
    correct = {"replicas": 1, "env": {"MODE": "safe"}, "drift": {"policy": "correct"}}
    apply(**correct).ok()
    container = {"name": "data-service", "env": [{"name": "MODE", "value": "fast"}]}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    path = f"{kube.path('StatefulSet', 'graph')}?fieldManager=by-hand"
    kube.call("PATCH", path, patch, "application/strategic-merge-patch+json")
    found = run("drift", "graph", "-o", "json")
    assert [item["path"] for item in found.json] == ["spec.template.spec.containers[data-service].env[MODE].value"]
    again = apply(**correct).ok()
    assert again.row["status"] == "Ready"
    assert {"name": "MODE", "value": "safe"} in kube.pod("graph-0")["containers"][0]["env"]
    assert run("drift", "graph").code == 0
    assert apply(**correct).ok().row["changes"] == []


def test_what_is_left_to_an_autoscaler_stays_as_it_sets_it(run, kube, apply, until):
    left = {"replicas": 1, "drift": {"policy": "correct", "ignore": ["replicas"]}}
    apply(**left).ok()
    kube.patch("StatefulSet", "graph", {"spec": {"replicas": 2}}, "/scale")
    until(lambda: run("status", "graph").code == 0, "it is ready with the autoscaler's number")
    status = run("status", "graph", "-o", "json").json
    assert (status["ready"], status["wanted"], len(status["endpoints"])) == (2, 2, 2)
    found = run("drift", "graph", "-o", "json").ok()
    assert [(item["path"], item["ignored"]) for item in found.json] == [("spec.replicas", True)]
    # Neither a repeat nor an update of something else takes the autoscaler's replicas away.
    apply(**left).ok()
    assert kube.get("StatefulSet", "graph")["spec"]["replicas"] == 2
    updated = apply(**left, env={"NEW": "1"}).ok()
    assert (updated.row["ready"], updated.row["wanted"]) == (2, 2)
    assert kube.get("StatefulSet", "graph")["spec"]["replicas"] == 2
    refused = run("scale", "graph", "--replicas", "3")
    assert (refused.code, "left to somebody else" in refused.err) == (4, True)
