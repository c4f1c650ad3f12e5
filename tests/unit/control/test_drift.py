"""What counts as a change by others, who made it, and that no secret shows."""

import base64
import copy
from typing import Any

import pytest

from provisioner.control.drift import compare, manager
from provisioner.engine import Resource
from provisioner.spec import DataServiceSpec, parse_spec


def spec(**fields: object) -> DataServiceSpec:
    return parse_spec({"image": "a:1", "ports": [{"name": "grpc", "port": 9000}], **fields})


LIVE: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {
        "name": "graph",
        "resourceVersion": "1",
        "labels": {"team.example.com/a": "b"},
        "managedFields": [
            {
                "manager": "pulumi-kubernetes",
                "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {
                    "f:spec": {
                        "f:replicas": {},
                        "f:template": {"f:spec": {"f:containers": {'k:{"name":"data-service"}': {"f:image": {}}}}},
                    }
                },
            },
            {
                "manager": "kubectl",
                "subresource": "scale",
                "time": "2026-01-02T00:00:00Z",
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
            },
        ],
    },
    "spec": {
        "replicas": 2,
        "template": {"spec": {"containers": [{"name": "data-service", "image": "a:1", "command": ["run"]}]}},
    },
    "status": {"readyReplicas": 2},
}
APPLIED = Resource("urn::graph", "kubernetes:apps/v1:StatefulSet", True, "team/graph", "", {}, copy.deepcopy(LIVE))


def changed(**fields: Any) -> dict[str, Any]:
    live = copy.deepcopy(LIVE)
    live["spec"].update(fields.pop("spec", {}))
    live["metadata"].update(fields.pop("metadata", {}))
    live["spec"]["template"]["spec"]["containers"][0].update(fields.pop("container", {}))
    return {**live, **fields}


def paths(live: dict[str, Any] | None, wanted: DataServiceSpec | None = None) -> list[tuple[str, bool]]:
    return [(found.path, found.ignored) for found in compare(APPLIED, live, wanted or spec(), {})]


def test_what_the_controllers_write_is_no_drift():
    assert paths(changed(status={"readyReplicas": 0}, metadata={"resourceVersion": "7", "managedFields": []})) == []


@pytest.mark.parametrize(
    ("live", "path"),
    [
        (changed(spec={"replicas": 5}), "spec.replicas"),
        (changed(container={"image": "b"}), "spec.template.spec.containers[data-service].image"),
        (changed(container={"securityContext": {"privileged": True}}), None),
        (changed(metadata={"labels": {}}), "metadata.labels.team.example.com/a"),
        (changed(metadata={"annotations": {"who": "me"}}), "metadata.annotations.who"),
        (None, ""),
    ],
)
def test_what_others_changed(live: dict[str, Any] | None, path: str | None):
    found = compare(APPLIED, live, spec(), {})
    assert len(found) == 1
    assert path is None or found[0].path == path


def test_what_is_left_to_others_is_marked():
    live = changed(spec={"replicas": 5}, container={"image": "b", "resources": {"limits": {"cpu": "1"}}})
    ignoring = spec(drift={"ignore": ["replicas", "resources"]})
    assert dict(paths(live, ignoring)) == {
        "spec.replicas": True,
        "spec.template.spec.containers[data-service].image": False,
        "spec.template.spec.containers[data-service].resources": True,
    }


@pytest.mark.parametrize(
    ("steps", "who"),
    [
        (("spec", "replicas"), "kubectl (scale)"),
        (("spec", "template", "spec", "containers", "[data-service]", "image"), "pulumi-kubernetes"),
        (("spec", "template", "spec", "containers", "[other]", "image"), ""),
        (("metadata", "labels", "x"), ""),
    ],
)
def test_who_wrote_a_field(steps: tuple[str, ...], who: str):
    assert manager(LIVE, steps) == who


@pytest.mark.parametrize("broken", [{}, {"metadata": {"managedFields": [{"fieldsV1": []}, 3, {}]}}])
def test_managed_fields_of_any_shape(broken: dict[str, Any]):
    assert manager(broken, ("spec", "replicas")) == ""


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


@pytest.mark.parametrize(
    ("data", "path", "applied", "there"),
    [
        ({"TOKEN": encoded("hunter2")}, None, None, None),
        ({"TOKEN": encoded("hunter3")}, "data.TOKEN", "(secret)", "(secret)"),
        ({}, "data.TOKEN", "(secret)", None),
        ({"TOKEN": encoded("hunter2"), "MORE": encoded("hunter4")}, "data.MORE", None, "(secret)"),
    ],
)
def test_a_changed_secret_is_told_without_its_value(
    data: dict[str, str], path: str | None, applied: str | None, there: str | None
):
    secret = Resource("urn::graph", "kubernetes:core/v1:Secret", True, "team/graph", "", {}, {"data": "[secret]"})
    found = compare(secret, {"data": data}, spec(), {"TOKEN": "hunter2"})
    assert [(item.path, item.applied, item.found) for item in found] == ([(path, applied, there)] if path else [])
    assert "hunter" not in repr(found)
    assert encoded("hunter3") not in repr(found)
