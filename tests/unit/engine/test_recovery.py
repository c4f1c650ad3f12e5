"""Decisions about what a killed operation left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.engine.checkpoint import parse
from provisioner.engine.process import ProcessFacts
from provisioner.engine.recovery import Holder, adopt, foreign_objects, judge, settle
from provisioner.engine.state import Lock
from provisioner.identity import LABEL_STACK

TAKEN = datetime(2026, 5, 9, 12, tzinfo=UTC)
LOCK = Lock(pid=42, user="u", host="here", time=TAKEN, path="p")
URN = "urn:pulumi:graph::data-service::data-service:index:DataService$kubernetes:core/v1:Service::graph"
OTHER = "urn:pulumi:graph::data-service::data-service:index:DataService$kubernetes:apps/v1:StatefulSet::graph"


def facts(started: timedelta, *command: str) -> ProcessFacts:
    return ProcessFacts(session=42, started=(TAKEN + started).timestamp(), command=command)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, Holder.DEAD),
        (facts(timedelta(seconds=-1), "pulumi"), Holder.ALIVE),
        # Its start is counted in ticks and may seem to be a little later than the lock.
        (facts(timedelta(seconds=1), "pulumi"), Holder.ALIVE),
        # The pid was given to another process since.
        (facts(timedelta(seconds=10), "sshd"), Holder.DEAD),
        # The clock was set forward after the lock was taken.
        (facts(timedelta(hours=1), "pulumi", "up", "--stack", "graph"), Holder.ALIVE),
        (facts(timedelta(hours=1), "pulumi", "up", "--stack", "other"), Holder.DEAD),
    ],
)
def test_a_holder_on_this_machine(found: ProcessFacts | None, expected: Holder) -> None:
    assert judge(LOCK, stack="graph", host="here", facts=found) is expected


@given(st.none() | st.floats(min_value=-1e6, max_value=1e6))
def test_a_holder_elsewhere_is_never_judged(seconds: float | None) -> None:
    found = None if seconds is None else facts(timedelta(seconds=seconds), "pulumi")
    assert judge(LOCK, stack="graph", host="there", facts=found) is Holder.UNKNOWN


@given(st.floats(min_value=0, max_value=1e9), st.lists(st.text()))
def test_whoever_was_there_before_the_lock_is_alive(seconds: float, command: list[str]) -> None:
    found = ProcessFacts(1, TAKEN.timestamp() - seconds, tuple(command))
    assert judge(LOCK, stack="graph", host="here", facts=found) is Holder.ALIVE


def pending(urn: str = URN, kind: str = "creating", **resource: Any) -> dict[str, Any]:
    metadata = {"name": "graph", "namespace": "ml", "labels": {LABEL_STACK: "graph", "app": "x"}}
    values = {"urn": urn, "type": "kubernetes:core/v1:Service", "custom": True, "inputs": {"metadata": metadata}}
    return {"type": kind, "resource": values | resource}


def read(document: Mapping[str, Any]) -> Any:
    return parse("graph", json.dumps(document).encode())


def latest(content: bytes | None) -> Any:
    assert content is not None
    return json.loads(content)["checkpoint"]["latest"]


def test_a_pending_create_is_taken_in_by_its_name(document: Callable[..., Mapping[str, Any]]) -> None:
    before = document("graph", resources=[{"urn": "urn:x::y::t::s", "type": "t"}], pending_operations=[pending()])
    after = latest(adopt(read(before)))
    assert [item["urn"] for item in after["resources"]] == ["urn:x::y::t::s", URN]
    assert after["resources"][1]["id"] == "ml/graph"
    assert "outputs" not in after["resources"][1]
    # Until the refresh is done, it stays known that it has to be.
    assert after["pending_operations"] == [pending()]


def test_an_object_without_a_namespace(document: Callable[..., Mapping[str, Any]]) -> None:
    before = document("graph", pending_operations=[pending(inputs={"metadata": {"name": "graph"}})])
    assert latest(adopt(read(before)))["resources"][0]["id"] == "graph"


@pytest.mark.parametrize(
    "operation",
    [
        pending(kind="updating"),
        pending(kind="deleting"),
        pending(type="pulumi:providers:kubernetes"),
        pending(type="data-service:index:DataService"),
        pending(inputs={}),
        pending(inputs={"metadata": {"generateName": "graph-"}}),
        pending(inputs={"metadata": "text"}),
    ],
)
def test_what_cannot_be_looked_up_is_not_taken_in(
    operation: dict[str, Any], document: Callable[..., Mapping[str, Any]]
) -> None:
    assert adopt(read(document("graph", pending_operations=[operation]))) is None


def test_what_is_known_is_not_taken_in_twice(document: Callable[..., Mapping[str, Any]]) -> None:
    known = {"urn": URN, "type": "kubernetes:core/v1:Service", "id": "ml/graph"}
    before = document("graph", resources=[known], pending_operations=[pending(), pending(OTHER)])
    after = latest(adopt(read(before)))
    assert [item["urn"] for item in after["resources"]] == [URN, OTHER]


def found(urn: str, labels: Mapping[str, str] | None) -> dict[str, Any]:
    metadata = {"name": "graph"} if labels is None else {"name": "graph", "labels": labels}
    return {"urn": urn, "type": "kubernetes:core/v1:Service", "outputs": {"metadata": metadata}}


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        ({LABEL_STACK: "graph", "app": "x"}, True),
        # Somebody may change what is not ours to label.
        ({LABEL_STACK: "graph", "app": "y"}, True),
        ({LABEL_STACK: "another"}, False),
        ({"app": "x"}, False),
        (None, False),
    ],
)
def test_an_object_without_our_labels_is_let_go(
    labels: Mapping[str, str] | None, ours: bool, document: Callable[..., Mapping[str, Any]]
) -> None:
    checkpoint = read(document("graph", resources=[found(URN, labels)], pending_operations=[pending()]))
    assert foreign_objects(checkpoint) == (() if ours else (URN,))
    after = latest(settle(checkpoint))
    assert [item["urn"] for item in after["resources"]] == ([URN] if ours else [])
    assert after["pending_operations"] == []


def test_objects_that_were_not_pending_are_never_let_go(document: Callable[..., Mapping[str, Any]]) -> None:
    checkpoint = read(document("graph", resources=[found(URN, None)], pending_operations=[pending(kind="updating")]))
    assert foreign_objects(checkpoint) == ()


def test_an_object_that_was_not_there_is_no_trouble(document: Callable[..., Mapping[str, Any]]) -> None:
    checkpoint = read(document("graph", resources=[], pending_operations=[pending()]))
    assert latest(settle(checkpoint))["resources"] == []


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, Holder.UNKNOWN), (60.0, Holder.DEAD)])
def test_a_lock_whose_writer_was_killed_amid_the_write_is_abandoned(seconds: float, expected: Holder) -> None:
    now = datetime(2026, 5, 9, 8, tzinfo=UTC)
    lock = Lock(0, "unknown", "unknown", now - timedelta(seconds=seconds), "locks/a/1.json.18ece.tmp")
    assert judge(lock, stack="a", host="here", facts=None, now=now) is expected
    # One that was finished and cannot be read names nobody, and nobody is judged.
    finished = replace(lock, path="locks/a/1.json")
    assert judge(finished, stack="a", host="here", facts=None, now=now) is Holder.UNKNOWN
