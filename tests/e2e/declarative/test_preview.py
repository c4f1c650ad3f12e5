"""What a preview says, and that the API server keeps its word: in place or by replacement, field by field."""

import pytest
import yaml

from provisioner.control.plan import plan
from provisioner.control.recorded import recorded
from provisioner.control.request import ServiceRequest
from provisioner.engine import Engine
from provisioner.identity import for_name
from provisioner.replacement import replacements
from provisioner.resources.component import program
from provisioner.sealing import Sealer
from provisioner.spec import parse_spec

DATA = {"name": "data", "mountPath": "/data", "claim": {"size": "10Mi"}}


def test_a_preview_changes_nothing_and_says_what_an_apply_would(run, kube, file, spec, apply, backend):
    path = file(spec())
    first = run("preview", "-f", path, "-o", "json")
    assert first.code == 3
    assert [(change["action"], change["kind"]) for change in first.row["changes"]] == [
        ("create", "Service"),
        ("create", "StatefulSet"),
    ]
    assert kube.names("StatefulSet", "Service") == []
    assert not (backend / ".pulumi" / "stacks" / "data-service").exists()

    apply().ok()
    assert run("preview", "-f", path).code == 0
    before = kube.get("StatefulSet", "graph")["metadata"]["resourceVersion"]
    edited = file(spec(replicas=2, env={"MODE": "fast"}, disruptionBudget={"maxUnavailable": 1}))
    changed = run("preview", "-f", edited)
    assert changed.code == 3
    assert changed.out.splitlines()[1:] == [
        "~ StatefulSet graph: changed in place",
        "    spec.replicas: 1 -> 2",
        '    spec.template.spec.containers[data-service].env[MODE]: <none> -> {"name": "MODE", "value": "fast"}',
        "+ PodDisruptionBudget graph: to be created",
        "1 to be created, 1 changed in place; nothing was changed yet",
    ]
    assert kube.get("StatefulSet", "graph")["metadata"]["resourceVersion"] == before
    assert run("apply", "-f", edited).code == 0
    document = yaml.safe_load(run("preview", "-f", file(spec(replicas=2, env={"MODE": "fast"})), "-o", "yaml").out)
    assert [(change["action"], change["kind"]) for change in document[0]["changes"]] == [
        ("update", "StatefulSet"),
        ("delete", "PodDisruptionBudget"),
    ]


def test_a_replacement_is_refused_then_done_as_it_was_shown(run, kube, file, spec, apply):
    apply(volumes=[DATA], replicas=2).ok()
    kube.exec("graph-0", "echo precious > /data/file")
    claims = {name: kube.uid("PersistentVolumeClaim", name) for name in ("data-graph-0", "data-graph-1")}
    bigger = file(spec(volumes=[{**DATA, "claim": {"size": "20Mi"}}], replicas=2))

    shown = run("preview", "-f", bigger)
    assert shown.code == 3
    for line in (
        "! StatefulSet graph: to be replaced",
        "    volumes[data].claim.size: the claim templates of a StatefulSet cannot be changed",
        "! 2 volumes lost, with the data:",
        "    data-graph-0 (10Mi): replaced with the StatefulSet, whenDeleted is Delete",
        "an apply of this is refused unless it says --replace",
    ):
        assert line in shown.out.splitlines()

    refused = run("apply", "-f", bigger)
    assert (refused.code, "data-graph-0, data-graph-1" in refused.err) == (4, True)
    assert {name: kube.uid("PersistentVolumeClaim", name) for name in claims} == claims
    assert kube.exec("graph-0", "cat /data/file") == "precious\n"

    assert "an apply of this is refused" not in run("preview", "--replace", "-f", bigger).out
    replaced = run("apply", "--replace", "-f", bigger, "-o", "json").ok()
    assert (replaced.row["status"], replaced.row["ready"]) == ("Ready", 2)
    assert "data-graph-1" in replaced.err
    for name, uid in claims.items():
        assert kube.uid("PersistentVolumeClaim", name) != uid
        assert kube.get("PersistentVolumeClaim", name)["spec"]["resources"]["requests"]["storage"] == "20Mi"
    assert kube.exec("graph-0", "ls /data") == ""


def test_a_replacement_keeps_what_is_retained(run, kube, file, spec, apply):
    retained = {"whenDeleted": "Retain"}
    apply(volumes=[DATA], volumeRetention=retained).ok()
    kube.exec("graph-0", "echo precious > /data/file")
    ordered = file(spec(volumes=[DATA], volumeRetention=retained, podManagementPolicy="OrderedReady"))
    shown = run("preview", "-f", ordered, "-o", "json").row
    assert (shown["needsReplace"], shown["lostVolumes"]) == (True, [])
    assert [item["field"] for item in shown["replacements"]] == ["podManagementPolicy"]
    run("apply", "--replace", "-f", ordered).ok()
    assert kube.exec("graph-0", "cat /data/file") == "precious\n"


CHANGES = [
    {"image": "localhost/busybox:other"},
    {"imagePullPolicy": "Never"},
    {"imagePullSecrets": ["registry"]},
    {"command": ["sleep", "1"]},
    {"args": ["x"]},
    {"env": {"A": "b"}},
    {"env": {"A": {"secret": "b"}}},
    {"ports": [{"name": "main", "port": 9000}, {"name": "more", "port": 9001}]},
    {"replicas": 4},
    {"resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}}},
    {"readinessProbe": {"exec": {"command": ["true"]}}},
    {"livenessProbe": {"tcpSocket": {"port": "main"}}},
    {"startupProbe": {"httpGet": {"port": "main"}}},
    {"nodeSelector": {"a": "b"}},
    {"tolerations": [{"operator": "Exists"}]},
    {"affinity": {"replicasApart": "Preferred"}},
    {"topologySpread": [{"topologyKey": "zone"}]},
    {"volumes": [DATA, {"name": "scratch", "mountPath": "/scratch", "emptyDir": {}}]},
    {"volumes": [{**DATA, "mountPath": "/elsewhere", "readOnly": True}]},
    {"volumes": [{**DATA, "claim": {"size": "20Mi"}}]},
    {"volumes": [{**DATA, "claim": {"size": "10Mi", "storageClass": "fast"}}]},
    {"volumes": [{**DATA, "claim": {"size": "10Mi", "accessMode": "ReadWriteMany"}}]},
    {"volumes": [DATA, {"name": "more", "mountPath": "/more", "claim": {"size": "1Mi"}}]},
    {"volumes": []},
    {"volumeRetention": {"whenDeleted": "Retain", "whenScaled": "Retain"}},
    {"disruptionBudget": {"minAvailable": 1}},
    {"maxUnavailable": 2},
    {"serviceAccount": "other"},
    {"labels": {"a": "b"}},
    {"annotations": {"a": "b"}},
    {"podManagementPolicy": "OrderedReady"},
    {"terminationGracePeriodSeconds": 5},
    {"startDeadline": "5m"},
    {"ttl": "1h"},
    {"deletionPolicy": "Retain"},
    {"drift": {"policy": "correct"}},
]


@pytest.mark.timeout(900)
def test_each_field_is_changed_in_place_or_replaced_as_the_rules_say(kube, settings, spec, environment):
    """The engine asks its provider, and that the API server (by a dry run): they decide, and our rules agree."""
    identity = for_name("p", "d", namespace=kube.namespace, name="graph")
    engine, sealer = Engine(settings), Sealer.of(settings)
    # No pod is needed to learn what may be changed.
    base = parse_spec(spec(replicas=0, volumes=[DATA]))
    stack = engine.stack(identity.stack)
    stack.up(program(identity, base, sealer))
    checkpoint = engine.state.checkpoint(identity.stack)
    covered = set()
    for change in CHANGES:
        wanted = sealer.sealed(parse_spec({**spec(replicas=0, volumes=[DATA]), **change}), identity.stack)
        summary = stack.preview(program(identity, wanted, sealer))
        found = plan(recorded(checkpoint), ServiceRequest(identity, wanted, 0.0), summary)
        actions = {(item.kind, item.action) for item in found.changes}
        told = [item.op for item in summary.changed if item.type.endswith(":StatefulSet")]
        needed = bool(replacements(base, wanted))
        assert found.changed, change
        assert told == (["replace"] if needed else ["update"]), change
        assert ("StatefulSet", "replace" if needed else "update") in actions, change
        assert all(item.fields for item in found.changes if item.action in ("update", "replace")), change
        covered |= set(change)
    assert covered == {field.alias for field in type(base).model_fields.values()}
