"""What an apply would do, as it is told from the engine's preview."""

from typing import Any

from provisioner.control.plan import plan
from provisioner.control.recorded import Recorded
from provisioner.control.request import ServiceRequest
from provisioner.engine import Change, ChangeSummary
from provisioner.identity import ANNOTATION_BACKEND, ANNOTATION_SPEC_HASH, for_name
from provisioner.spec import parse_spec

IDENTITY = for_name("p", "d", namespace="team", name="graph")
DATA = {"name": "data", "mountPath": "/data", "claim": {"size": "1Gi"}}


def request(**fields: Any) -> ServiceRequest:
    spec = parse_spec({"image": "a", "ports": [{"name": "grpc", "port": 9000}], **fields})
    return ServiceRequest(IDENTITY, spec, 0.0)


def record(**fields: Any) -> Recorded:
    return Recorded(IDENTITY, request(**fields).spec, True, None)


def change(kind: str, op: str, before: Any = None, after: Any = None, fields: tuple[str, ...] = ()) -> Change:
    group = {"StatefulSet": "apps/v1", "PodDisruptionBudget": "policy/v1"}.get(kind, "core/v1")
    return Change(f"urn::{kind}", f"kubernetes:{group}:{kind}", "graph", op, fields, before or {}, after or {})


def told(found: Any) -> list[tuple[str, str, list[str]]]:
    return [(item.action, item.kind, [field.path for field in item.fields]) for item in found.changes]


def test_objects_come_in_one_order_and_the_component_is_none():
    changes = [
        change("PodDisruptionBudget", "delete"),
        change("StatefulSet", "create"),
        Change("urn", "data-service:index:DataService", "graph", "update"),
        change("Service", "create"),
    ]
    found = plan(None, request(), ChangeSummary(tuple(changes)))
    assert told(found) == [
        ("create", "Service", []),
        ("create", "StatefulSet", []),
        ("delete", "PodDisruptionBudget", []),
    ]
    assert not plan(None, request(), ChangeSummary(tuple(changes[2:3]))).changed


def test_values_are_the_engines_and_bookkeeping_is_left_out():
    def document(replicas: int, digest: str) -> Any:
        annotations = {ANNOTATION_SPEC_HASH: digest, ANNOTATION_BACKEND: digest}
        return {"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}

    summary = ChangeSummary((change("StatefulSet", "update", document(1, "x"), document(2, "y")),))
    (item,) = plan(record(), request(replicas=2), summary).changes
    assert [(field.path, field.old, field.new) for field in item.fields] == [("spec.replicas", 1, 2)]


def test_what_nothing_else_tells_is_told_by_the_engines_paths():
    summary = ChangeSummary((change("Service", "update", fields=("spec.ports",)),))
    assert told(plan(record(), request(), summary)) == [("update", "Service", ["spec.ports"])]


def test_secrets_are_compared_sealed_and_never_shown():
    old = record(env={"SAME": {"sealed": "v1:a"}, "OTHER": {"sealed": "v1:b"}, "GONE": {"sealed": "v1:c"}})
    new = request(env={"SAME": {"sealed": "v1:a"}, "OTHER": {"sealed": "v1:x"}, "MORE": {"sealed": "v1:y"}})
    summary = ChangeSummary((change("Secret", "update", {"data": "[secret]"}, {"data": "[secret]"}),))
    (item,) = plan(old, new, summary).changes
    assert {field.path: (field.old, field.new) for field in item.fields} == {
        "data.OTHER": ("(secret)", "(secret)"),
        "data.MORE": (None, "(secret)"),
        "data.GONE": ("(secret)", None),
    }


def test_a_replacement_says_its_price_and_whether_it_is_allowed():
    summary = ChangeSummary((change("StatefulSet", "update", {"a": 1}, {"a": 2}),))
    bigger = request(volumes=[{**DATA, "claim": {"size": "2Gi"}}])
    found = plan(record(volumes=[DATA]), bigger, summary)
    assert [item.action for item in found.changes] == ["replace"]
    assert ([item.claim for item in found.lost], found.allowed) == (["data-graph-0"], False)
    allowed = ServiceRequest(IDENTITY, bigger.spec, 0.0, replace=True)
    assert plan(record(volumes=[DATA]), allowed, summary).allowed
