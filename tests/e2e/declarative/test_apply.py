"""Apply, look, scale, delete: what a person does with a service, and what the cluster shows of it."""

import json

import pytest
import yaml


def test_a_service_from_its_file_to_its_end(run, kube, apply, file, spec):
    first = apply(replicas=2).ok()
    assert {key: first.row[key] for key in ("name", "namespace", "ready", "wanted", "status")} == {
        "name": "graph",
        "namespace": kube.namespace,
        "ready": 2,
        "wanted": 2,
        "status": "Ready",
    }
    assert sorted(first.row["changes"]) == ["create Service graph", "create StatefulSet graph"]

    before = kube.get("StatefulSet", "graph")["metadata"]["resourceVersion"]
    assert apply(replicas=2).ok().row["changes"] == []
    assert kube.get("StatefulSet", "graph")["metadata"]["resourceVersion"] == before

    status = run("status", "graph", "-o", "json").ok().json
    assert (status["status"], status["ready"], status["applied"]) == ("Ready", 2, True)
    assert [replica["pod"] for replica in status["replicas"]] == ["graph-0", "graph-1"]
    assert all(replica["ready"] and replica["status"] == "Running" for replica in status["replicas"])
    assert run("status", status["stack"]).ok().out.startswith("service:  graph")

    outputs = yaml.safe_load(run("outputs", "graph", "-o", "yaml").ok().out)
    assert outputs["endpoints"][1] == f"graph-1.graph.{kube.namespace}.svc.cluster.local:9000"
    assert outputs["ports"] == {"main": 9000}
    table = run("outputs", "graph").ok().out.splitlines()
    assert table[0].split() == ["OUTPUT", "VALUE"]

    listed = run("list", "-n", kube.namespace, "-o", "json").ok().row
    assert (listed["name"], listed["status"], listed["ready"]) == ("graph", "Ready", 2)
    assert run("list", "--project", "nobodys", "-o", "json").ok().json == []
    heading, line = run("list", "-n", kube.namespace).ok().out.splitlines()
    assert heading.split() == ["NAME", "NAMESPACE", "OWNER", "READY", "STATUS", "AGE"]
    assert line.split()[:4] == ["graph", kube.namespace, "flytesnacks:development", "2/2"]

    events = run("events", "graph", "-o", "json").ok().json
    assert {"pod/graph-0", "statefulset/graph"} <= {event["object"] for event in events}

    gone = run("delete", "graph", "-o", "json").ok().row
    assert gone["status"] == "Gone"
    assert kube.names("StatefulSet", "Service", "Pod") == []
    missing = run("status", "graph")
    assert (missing.code, "there is no service graph" in missing.err) == (1, True)
    assert run("delete", "-f", file(spec()), "-o", "json").ok().row["status"] == "Gone"


def test_scaling_leaves_the_other_replicas_alone(run, kube, apply):
    apply(replicas=2).ok()
    uids = [kube.uid("Pod", f"graph-{ordinal}") for ordinal in range(2)]
    more = run("scale", "graph", "--replicas", "3", "-o", "json").ok()
    assert more.row["ready"] == 3
    (change,) = more.row["changes"]
    assert change.startswith("update StatefulSet graph (")
    assert "spec.replicas" in change
    assert [kube.uid("Pod", f"graph-{ordinal}") for ordinal in range(2)] == uids
    paused = run("scale", "graph", "--replicas", "0", "-o", "json").ok()
    assert (paused.row["status"], paused.row["wanted"]) == ("Ready", 0)
    assert kube.names("Pod") == []
    assert run("list", "-n", kube.namespace, "-o", "json").row["status"] == "Paused"


def test_logs_of_one_replica_and_of_all(run, apply, kube, until):
    script = "echo shard $DATA_SERVICE_REPLICA of $DATA_SERVICE_NAME; exec httpd -f -p 9000"
    apply(replicas=2, command=["sh", "-c", script]).ok()
    assert run("logs", "graph", "-r", "1").ok().out == "shard 1 of graph\n"
    assert run("logs", "graph").ok().out.splitlines() == [f"graph-{n} | shard {n} of graph" for n in (0, 1)]
    assert run("logs", "graph", "--tail", "0").ok().out == ""
    none = run("logs", "graph", "-r", "7")
    assert (none.code, "no pod of replica 7; there are 0, 1" in none.err) == (1, True)
    previous = run("logs", "graph", "--previous")
    assert previous.code == 1
    assert previous.err.count("error: graph-") == 2


def test_logs_of_the_run_before_and_of_the_one_that_goes_on(run, apply, kube, until):
    # Its first run ends by itself, its second goes on: the claim tells them apart.
    script = (
        "if [ -e /data/again ]; then echo second; sleep 2; echo end; exit 0; fi; touch /data/again; echo first; sleep 4"
    )
    volumes = [{"name": "data", "mountPath": "/data", "emptyDir": {}}]
    apply("--no-wait", command=["sh", "-c", script], volumes=volumes).ok()
    until(
        lambda: kube.get("Pod", "graph-0") and run("logs", "graph", "--previous").out == "first\n", "it was restarted"
    )
    followed = run("logs", "graph", "--follow")
    assert followed.out.splitlines()[-1] == "end"


def test_documents_are_applied_together_or_not_at_all(run, kube, spec, backend):
    def document(name: str, **change: object) -> str:
        return json.dumps({"apiVersion": "data-service/v1", "metadata": {"name": name}, "spec": spec(**change)})

    wrong = run("apply", "-f", "-", stdin=f"{document('one')}\n---\n{document('two', imgae='x')}")
    assert wrong.code == 2
    assert "[1].spec.imgae: unknown field; did you mean image?" in wrong.err
    assert not backend.exists()
    assert kube.names("StatefulSet", "Service") == []

    twice = run("apply", "-f", "-", stdin=f"{document('one')}\n---\n{document('one', replicas=2)}")
    assert (twice.code, "declared twice" in twice.err) == (2, True)
    assert kube.names("StatefulSet", "Service") == []

    both = run("apply", "-o", "json", "-f", "-", stdin=f"{document('one')}\n---\n{document('two')}").ok()
    assert [(row["name"], row["status"]) for row in both.json] == [("one", "Ready"), ("two", "Ready")]


def test_an_apply_that_is_not_waited_for(run, apply, kube, until):
    told = "until test -e /tmp/told; do sleep 0.1; done; exec httpd -f -p 9000"
    applied = apply("--no-wait", command=["sh", "-c", told]).ok()
    assert applied.row["status"] == "Starting"
    waiting = run("status", "graph", "-o", "json")
    assert (waiting.code, waiting.json["ready"]) == (3, 0)
    until(lambda: (kube.get("Pod", "graph-0") or {}).get("status", {}).get("phase") == "Running", "its container runs")
    kube.exec("graph-0", "touch /tmp/told")
    until(lambda: run("status", "graph").code == 0, "it is ready")


def test_an_apply_that_is_not_ready_in_time(apply):
    late = apply("--timeout", "5s", command=["sleep", "1000"])
    assert late.code == 3
    assert late.row["ready"] == 0
    assert "error: graph: not ready yet: " in late.err
    assert "\nhint: " in late.err


@pytest.mark.parametrize("words", [["scale", "graph", "--replicas", "-1"], ["apply"], ["status", "Not_A_Name"]])
def test_wrong_words(run, words):
    wrong = run(*words)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error: ")
