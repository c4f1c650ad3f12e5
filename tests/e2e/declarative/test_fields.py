"""Every field lands on the objects and works: what the pods are is what the specification says."""

import pytest

SERVE = "httpd -f -p 9000"
MERGE = "application/merge-patch+json"


def test_what_a_replica_runs_and_sees(run, kube, apply):
    kube.create("ServiceAccount", "reader")
    apply(
        replicas=2,
        imagePullPolicy="IfNotPresent",
        imagePullSecrets=["no-such-registry"],
        command=["sh", "-c"],
        args=[SERVE],
        env={"LITERAL": "$(HOME) $HOME", "SHARDS": "2"},
        ports=[{"name": "main", "port": 9000}, {"name": "metrics", "port": 9001, "protocol": "UDP"}],
        resources={"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
        serviceAccount="reader",
        labels={"team.example.com/name": "graph-team"},
        annotations={"example.com/why": "a test"},
        terminationGracePeriodSeconds=3,
        ttl="3h",
        deletionPolicy="Retain",
    ).ok()
    pod = kube.pod("graph-1")
    (container,) = pod["containers"]
    assert container["command"] == ["sh", "-c"]
    assert container["args"] == [SERVE]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {
        "requests": {"cpu": "20m", "memory": "16Mi"},
        "limits": {"cpu": "1", "memory": "64Mi"},
    }
    assert pod["imagePullSecrets"] == [{"name": "no-such-registry"}]
    assert (pod["serviceAccountName"], pod["terminationGracePeriodSeconds"]) == ("reader", 3)
    seen = kube.exec("graph-1", 'echo "$LITERAL/$SHARDS/$DATA_SERVICE_NAME/$DATA_SERVICE_REPLICA"')
    assert seen == "$(HOME) $HOME/2/graph/1\n"

    ports = kube.get("Service", "graph")["spec"]["ports"]
    assert [(port["name"], port["port"], port["protocol"]) for port in ports] == [
        ("main", 9000, "TCP"),
        ("metrics", 9001, "UDP"),
    ]
    # Each replica is reached from the other by its own name.
    address = f"graph-0.graph.{kube.namespace}.svc.cluster.local:9000"
    assert "404" in kube.exec("graph-1", f"wget -O - http://{address}/ 2>&1 || true")

    for kind, name in (("StatefulSet", "graph"), ("Service", "graph"), ("Pod", "graph-0")):
        metadata = kube.get(kind, name)["metadata"]
        assert metadata["labels"]["team.example.com/name"] == "graph-team", kind
        assert metadata["annotations"]["example.com/why"] == "a test", kind
    annotations = kube.get("StatefulSet", "graph")["metadata"]["annotations"]
    assert annotations["data-service-provisioner/ttl"] == "3h"
    assert annotations["data-service-provisioner/deletion-policy"] == "Retain"


def test_probes_fail_and_recover(run, kube, apply, until):
    exists = {"exec": {"command": ["test", "-e", "/work/fine"]}, "periodSeconds": 1, "failureThreshold": 1}
    apply(
        command=["sh", "-c", f"touch /work/fine; {SERVE}"],
        volumes=[{"name": "work", "mountPath": "/work", "emptyDir": {}}],
        startupProbe={"tcpSocket": {"port": 9000}, "periodSeconds": 1, "failureThreshold": 60},
        readinessProbe=exists,
        livenessProbe={"httpGet": {"port": "main", "path": "/"}, "periodSeconds": 1, "failureThreshold": 3600},
    ).ok()
    kube.exec("graph-0", "mv /work/fine /work/broken")
    until(lambda: run("status", "graph").code == 3, "the failing readiness probe is noticed")
    status = run("status", "graph", "-o", "json").json
    assert (status["ready"], status["replicas"][0]["restarts"]) == (0, 0)
    kube.exec("graph-0", "mv /work/broken /work/fine")
    until(lambda: run("status", "graph").code == 0, "it has recovered")

    # The liveness probe restarts the container; /work outlives it, and its script makes the file anew.
    apply(
        command=["sh", "-c", f"touch /work/fine; {SERVE}"],
        volumes=[{"name": "work", "mountPath": "/work", "emptyDir": {}}],
        readinessProbe=exists,
        livenessProbe=exists,
    ).ok()
    kube.exec("graph-0", "rm /work/fine")

    def restarted() -> bool:
        replica = run("status", "graph", "-o", "json").json["replicas"][0]
        return bool(replica["restarts"] >= 1 and replica["ready"])

    until(restarted, "the liveness probe has restarted it, and it is ready again")


def test_a_claim_keeps_its_data_over_a_restart_and_scratch_space_does_not(run, kube, apply, until):
    apply(
        volumes=[
            {"name": "data", "mountPath": "/data", "claim": {"size": "10Mi", "storageClass": "standard"}},
            {"name": "scratch", "mountPath": "/scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "fixed", "mountPath": "/fixed", "readOnly": True, "emptyDir": {}},
        ]
    ).ok()
    kube.exec("graph-0", "echo kept > /data/file; echo lost > /scratch/file")
    assert "tmpfs" in kube.exec("graph-0", "grep ' /scratch ' /proc/mounts")
    assert "Read-only file system" in kube.exec("graph-0", "touch /fixed/file 2>&1 || true")
    uid = kube.uid("Pod", "graph-0")
    kube.delete("Pod", "graph-0")
    until(lambda: (kube.get("Pod", "graph-0") or {}).get("metadata", {}).get("uid") not in (None, uid), "a new pod")
    until(lambda: run("status", "graph").code == 0, "it is ready again")
    assert kube.exec("graph-0", "cat /data/file; ls /scratch") == "kept\n"
    claim = kube.get("PersistentVolumeClaim", "data-graph-0")["spec"]
    assert (claim["storageClassName"], claim["accessModes"]) == ("standard", ["ReadWriteOnce"])


def test_a_claim_goes_with_its_replica_or_stays(run, kube, apply, until):
    data = [{"name": "data", "mountPath": "/data", "claim": {"size": "10Mi"}}]
    apply(replicas=2, volumes=data, volumeRetention={"whenScaled": "Retain"}).ok()
    run("scale", "graph", "--replicas", "1").ok()
    assert kube.names("PersistentVolumeClaim") == [
        "PersistentVolumeClaim/data-graph-0",
        "PersistentVolumeClaim/data-graph-1",
    ]
    apply(replicas=2, volumes=data).ok()
    scaled = run("scale", "graph", "--replicas", "1").ok()
    assert "note: volume to be deleted: data-graph-1 (10Mi)" in scaled.err
    until(lambda: kube.names("PersistentVolumeClaim") == ["PersistentVolumeClaim/data-graph-0"], "the claim is gone")


@pytest.mark.parametrize("policy", ["Parallel", "OrderedReady"])
def test_replicas_start_together_or_in_turn(kube, apply, policy):
    # Each waits a moment before it is ready, so that the order shows.
    apply(replicas=2, podManagementPolicy=policy, command=["sh", "-c", f"sleep 3; {SERVE}"]).ok()

    def at(pod: str, kind: str) -> str:
        conditions = kube.get("Pod", pod)["status"]["conditions"]
        return str(next(item["lastTransitionTime"] for item in conditions if item["type"] == kind))

    second_made = kube.get("Pod", "graph-1")["metadata"]["creationTimestamp"]
    assert (second_made >= at("graph-0", "Ready")) == (policy == "OrderedReady")


def test_node_selector_and_toleration_place_the_replicas(run, kube, apply, sandbox, until):
    """On a node that takes only who tolerates it; a hollow one, so that no other test's pods are held up."""
    sandbox.up(hollow=1)
    nodes = kube.call("GET", "/api/v1/nodes")["items"]
    hollow = next(node["metadata"]["name"] for node in nodes if "hollow" in node["metadata"]["name"])
    node = f"/api/v1/nodes/{hollow}"
    taint = {"key": "only", "value": kube.namespace, "effect": "NoSchedule"}
    changes = {"metadata": {"labels": {"placed": kube.namespace}}, "spec": {"taints": [taint]}}
    kube.call("PATCH", node, changes, MERGE)
    placed = {
        "nodeSelector": {"placed": kube.namespace},
        "affinity": {
            "nodeRequired": [{"matchExpressions": [{"key": "placed", "operator": "In", "values": [kube.namespace]}]}],
            "nodePreferred": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "placed", "operator": "Exists"}]}}
            ],
            "replicasApart": "Preferred",
        },
        "topologySpread": [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}],
    }
    try:
        apply("--no-wait", **placed).ok()
        until(lambda: "Unschedulable" in run("status", "graph", "-o", "json").out, "the reason is known")
        tolerant = apply(**placed, tolerations=[{"key": "only", "value": kube.namespace, "effect": "NoSchedule"}]).ok()
        assert tolerant.row["ready"] == 1
        assert kube.pod("graph-0")["nodeName"] == hollow
        apart = {**placed, "affinity": {"replicasApart": "Required"}}
        apply("--no-wait", **apart, replicas=2, tolerations=[{"operator": "Exists"}]).ok()
        until(
            lambda: "didn't match pod anti-affinity" in run("events", "graph").out, "the second replica finds no node"
        )
    finally:
        run("delete", "graph")
        # Pods of other tests would only seem to run there.
        sandbox.up(hollow=0)


def test_a_quota_holds_the_third_replica_back_and_scaling_down_works(run, kube, apply, until):
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "2"}}}
    kube.call("POST", f"/api/v1/namespaces/{kube.namespace}/resourcequotas", quota)
    apply("--no-wait", replicas=3).ok()
    until(lambda: "exceeded quota" in run("events", "graph").out, "the controller was refused the third pod")
    status = run("status", "graph", "-o", "json")
    assert (status.code == 0, status.json["wanted"]) == (False, 3)
    until(lambda: "quota" in run("status", "graph", "-o", "json").json["message"], "the quota is named as the cause")
    assert run("scale", "graph", "--replicas", "2", "-o", "json").ok().row["ready"] == 2


def test_names_that_kubernetes_could_not_carry_are_refused_at_the_door(run, kube, file, spec):
    long = run("apply", "-f", file(spec(), name="a" * 57))
    assert (long.code, "metadata.name" in long.err) == (2, True)
    assert run("apply", "--no-wait", "-f", file(spec(), name="a" * 52)).code == 0
