"""What the engine's events tell, in the order in which the real engine tells it."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.automation import EngineEvent

from provisioner.engine.changes import (
    Change,
    diagnostics,
    masked,
    on_their_way_out,
    outputs,
    still_in_the_way,
    summarize,
)

PREFIX = "urn:pulumi:graph::data-service::"
STACK = f"{PREFIX}pulumi:pulumi:Stack::data-service-graph"
COMPONENT = f"{PREFIX}data-service:index:DataService::graph"
SERVICE = f"{PREFIX}data-service:index:DataService$kubernetes:core/v1:Service::graph"
SET = f"{PREFIX}data-service:index:DataService$kubernetes:apps/v1:StatefulSet::graph"
FORBIDDEN = (
    f'Preview failed: resource "{SET}" was not successfully created by the Kubernetes API server: StatefulSet.apps'
    " \"graph\" is invalid: spec: Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden"
)


def step(kind: str, op: str, urn: str, **metadata: Any) -> EngineEvent:
    values = {"op": op, "urn": urn, "type": urn.split("::")[2].rsplit("$", 1)[-1]} | metadata
    return EngineEvent.from_json({kind: {"metadata": values}})


def before(op: str, urn: str, **metadata: Any) -> EngineEvent:
    return step("resourcePreEvent", op, urn, **metadata)


def after(op: str, urn: str, **metadata: Any) -> EngineEvent:
    return step("resOutputsEvent", op, urn, **metadata)


def told(severity: str, message: str, urn: str = "", **values: Any) -> EngineEvent:
    return EngineEvent.from_json({"diagnosticEvent": {"severity": severity, "message": message, "urn": urn} | values})


def diff(**kinds: str) -> dict[str, Any]:
    return {path.replace("__", "."): {"diffKind": kind} for path, kind in kinds.items()}


def test_a_create() -> None:
    provider = f"{PREFIX}pulumi:providers:kubernetes::default_4_25_0"
    events = [before("create", urn) for urn in (STACK, COMPONENT, provider, SERVICE)]
    events += [after("create", urn) for urn in (STACK, COMPONENT, provider, SERVICE)]
    summary = summarize(events)
    assert [str(change) for change in summary.changes] == ["create DataService graph", "create Service graph"]
    assert summary.counts == {"create": 2}
    assert str(summary) == "create DataService graph; create Service graph"


def test_no_change() -> None:
    summary = summarize([before("same", SERVICE), after("same", SERVICE), after("refresh", SET)])
    assert summary.changed == ()
    assert str(summary) == "no change"
    assert len(summary.changes) == 2


def test_an_update_names_its_fields() -> None:
    events = [before("update", SET, detailedDiff=diff(spec__replicas="update", metadata__labels="add"))]
    (change,) = summarize(events).changed
    assert change == Change(
        SET, "kubernetes:apps/v1:StatefulSet", "graph", "update", ("metadata.labels", "spec.replicas")
    )
    assert str(change) == "update StatefulSet graph (metadata.labels, spec.replicas)"


def test_what_differs_in_a_component_is_seen_from_its_inputs() -> None:
    old = {"inputs": {"spec": {"replicas": 1, "image": "a", "ports": [{"port": 1}], "args": ["a"]}}}
    new = {"inputs": {"spec": {"replicas": 3, "image": "a", "ports": [{"port": 2}], "args": ["a", "b"], "ttl": "1h"}}}
    (change,) = summarize([after("update", COMPONENT, old=old, new=new)]).changed
    assert change.fields == ("spec.args", "spec.ports[0].port", "spec.replicas", "spec.ttl")


def test_three_steps_are_one_replacement() -> None:
    fields = {"keys": ["spec.podManagementPolicy"], "detailedDiff": diff(spec__podManagementPolicy="update-replace")}
    events = [
        before("delete-replaced", SET),
        after("delete-replaced", SET),
        before("replace", SET, **fields),
        after("replace", SET, **fields),
        before("create-replacement", SET, **fields),
        after("create-replacement", SET, **fields),
    ]
    assert [str(change) for change in summarize(events).changes] == [
        "replace StatefulSet graph (spec.podManagementPolicy)"
    ]


def test_a_replacement_that_is_taken_up_again() -> None:
    assert [change.op for change in summarize([after("create-replacement", SET)]).changes] == ["replace"]


def test_a_destroy_in_the_middle_of_a_replacement() -> None:
    assert [change.op for change in summarize([after("delete-replaced", SET)]).changes] == ["delete"]


@pytest.mark.parametrize("op", ["import", "discard", "read", "remove-pending-replace", "read-replacement"])
def test_each_kind_of_step_has_a_name(op: str) -> None:
    (change,) = summarize([after(op, SET)]).changes
    assert change.op in {"create", "delete", "read"}


def test_outputs_of_the_stack() -> None:
    signature = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "[secret]"}
    events = [
        after("create", STACK, new={"outputs": {}}),
        after("create", SERVICE, new={"outputs": {"name": "not this"}}),
        after("create", STACK, new={"outputs": {"name": "graph", "key": signature}}),
    ]
    assert outputs(events) == {"name": "graph", "key": "[secret]"}
    assert outputs(events[1:2]) == {}
    assert masked([{"a": signature}, 1]) == [{"a": "[secret]"}, 1]


def test_messages_without_the_progress() -> None:
    events = [told("debug", "x"), told("info", "Retry", ephemeral=True), told("warning", " careful \n", SERVICE)]
    assert [(item.severity, item.message, item.urn) for item in diagnostics(events)] == [
        ("warning", "careful", SERVICE)
    ]


def test_the_old_object_in_the_way_of_a_preview() -> None:
    events = [before("replace", SET), told("error", FORBIDDEN, SET), told("error", "preview failed\n")]
    assert still_in_the_way(events) == ("StatefulSet graph",)


@pytest.mark.parametrize(
    "events",
    [
        # Not a replacement: the specification is wrong.
        [before("create", SET), told("error", FORBIDDEN, SET)],
        [
            before("replace", SET),
            told("error", 'StatefulSet.apps "graph" is invalid: spec.replicas: Invalid value', SET),
        ],
        # Something else is wrong as well.
        [before("replace", SET), told("error", FORBIDDEN, SET), told("error", "quota", SERVICE)],
        [before("replace", SET)],
        [],
    ],
)
def test_nothing_in_the_way(events: list[EngineEvent]) -> None:
    assert still_in_the_way(events) == ()


def test_objects_on_their_way_out() -> None:
    dying = {"outputs": {"metadata": {"name": "graph", "deletionTimestamp": "2026-05-09T07:29:33Z"}}}
    living = {"outputs": {"metadata": {"name": "graph"}}}
    assert on_their_way_out([after("create", SET, new=dying), after("same", SERVICE, new=living)]) == (
        "StatefulSet graph",
    )
    assert on_their_way_out([after("delete", SET, new=dying), after("create", COMPONENT, new={"outputs": {}})]) == ()
