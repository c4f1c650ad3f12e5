"""Whose a name is: others' objects are never touched, our own leftovers are adopted, old data is not shown."""

from provisioner.identity import LABEL_STACK, for_name

DATA = {"name": "data", "mountPath": "/data", "claim": {"size": "10Mi"}}


def service(**metadata):
    return {"metadata": metadata, "spec": {"ports": [{"port": 1}], "clusterIP": "None"}}


def test_an_object_of_somebody_else_is_refused_and_left_alone(run, kube, apply, file, spec, backend):
    labels = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "shop"}
    kube.create("Service", "graph", **service(labels=labels))
    before = kube.get("Service", "graph")["metadata"]["resourceVersion"]
    for refused in (apply(), run("preview", "-f", file(spec()))):
        assert refused.code == 4
        assert f"Service {kube.namespace}/graph exists and belongs to Helm, instance 'shop'" in refused.err
    assert kube.get("Service", "graph")["metadata"]["resourceVersion"] == before
    assert kube.names("StatefulSet") == []
    assert not (backend / ".pulumi" / "stacks" / "data-service").exists()


def test_the_name_of_another_projects_service_is_refused(run, kube, apply, file, spec):
    apply("--project", "one").ok()
    uid = kube.uid("StatefulSet", "graph")
    refused = apply("--project", "two", replicas=2)
    assert refused.code == 4
    assert "project 'one', domain 'development'" in refused.err
    assert kube.get("StatefulSet", "graph")["spec"]["replicas"] == 1
    # What is not found in a project is not deleted there either.
    assert run("delete", "graph", "--project", "two").code == 1
    assert kube.uid("StatefulSet", "graph") == uid
    run("delete", "graph", "--project", "one").ok()
    assert apply("--project", "two").ok().row["status"] == "Ready"


def test_what_an_interrupted_run_left_is_adopted(run, kube, apply):
    apply(replicas=2).ok()
    uids = {kind: kube.uid(kind, "graph") for kind in ("StatefulSet", "Service")}
    pods = [kube.uid("Pod", f"graph-{ordinal}") for ordinal in range(2)]
    # As after a kill between the creation of an object and its recording.
    run("forget", "graph", "--force").ok()
    assert run("list", "-n", kube.namespace, "-o", "json").row["status"] == "Unrecorded"
    apply(replicas=2).ok()
    assert {kind: kube.uid(kind, "graph") for kind in uids} == uids
    assert [kube.uid("Pod", f"graph-{ordinal}") for ordinal in range(2)] == pods
    assert run("list", "-n", kube.namespace, "-o", "json").row["status"] == "Ready"


def test_an_apply_right_after_a_deletion_waits_for_its_end(run, kube, apply, spec, file):
    apply(replicas=2, volumes=[DATA]).ok()
    uid = kube.uid("StatefulSet", "graph")
    run("delete", "graph", "--no-wait").ok()
    assert apply(replicas=2, volumes=[DATA]).ok().row["ready"] == 2
    assert kube.uid("StatefulSet", "graph") != uid


def test_a_reinstall_does_not_see_old_data_unless_asked(run, kube, apply):
    apply(volumes=[DATA], volumeRetention={"whenDeleted": "Retain"}).ok()
    kube.exec("graph-0", "echo precious > /data/file")
    kept = run("delete", "graph").ok()
    assert "note: graph: volumes kept: data-graph-0" in kept.err

    refused = apply(volumes=[DATA])
    assert (refused.code, "would see their data: data-graph-0" in refused.err) == (4, True)
    assert kube.names("StatefulSet") == []

    apply(volumes=[DATA], volumeRetention={"whenDeleted": "Retain"}).ok()
    assert kube.exec("graph-0", "cat /data/file") == "precious\n"

    run("delete", "graph", "--volumes").ok()
    assert kube.names("PersistentVolumeClaim") == []
    apply(volumes=[DATA]).ok()
    assert kube.exec("graph-0", "ls /data") == ""
    run("delete", "graph").ok()
    assert kube.names("PersistentVolumeClaim") == []


def test_labels_say_whose_each_object_is(kube, apply):
    apply("--project", "p", volumes=[DATA], disruptionBudget={"maxUnavailable": 1}, env={"A": {"secret": "b"}}).ok()
    stack = for_name("p", "development", namespace=kube.namespace, name="graph").stack
    kinds = ("StatefulSet", "Service", "Secret", "PodDisruptionBudget")
    for kind, name in [
        *((kind, "graph") for kind in kinds),
        ("Pod", "graph-0"),
        ("PersistentVolumeClaim", "data-graph-0"),
    ]:
        assert kube.get(kind, name)["metadata"]["labels"][LABEL_STACK] == stack, kind
