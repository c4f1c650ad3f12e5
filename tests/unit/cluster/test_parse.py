"""From the API server's JSON to our values: right for what is well formed, total for all else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.cluster import parse
from provisioner.cluster.objects import Event, Pod, StatefulSet, Termination
from provisioner.identity import ANNOTATION_SPEC_HASH, LABEL_STACK

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

POD = {
    "metadata": {
        "namespace": "default",
        "name": "store-10",
        "uid": "u",
        "labels": {LABEL_STACK: "store-x", "controller-revision-hash": "store-a"},
        "creationTimestamp": "2026-01-01T12:00:00Z",
    },
    "spec": {"nodeName": "node-1", "containers": [{"name": "data-service", "image": "localhost/store:1"}]},
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "no"},
            {"type": "PodScheduled", "status": "True"},
        ],
        "containerStatuses": [
            {
                "name": "data-service",
                "image": "sha256:0123",
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "startedAt": "2026-01-01T12:00:00Z",
                        "finishedAt": "2026-01-01T14:00:00+02:00",
                    }
                },
            }
        ],
    },
}


def test_a_pod_keeps_what_matters() -> None:
    pod = parse.pod(POD)
    assert (pod.namespace, pod.name, pod.uid, pod.stack) == ("default", "store-10", "u", "store-x")
    assert (pod.revision, pod.node, pod.phase, pod.ready, pod.ordinal) == ("store-a", "node-1", "Running", False, 10)
    assert pod.created == NOON
    assert [condition.type for condition in pod.conditions] == ["Ready"]
    (container,) = pod.containers
    assert container.image == "localhost/store:1"  # as it was asked for, not as it was resolved
    assert (container.waiting_reason, container.restarts) == ("CrashLoopBackOff", 2)
    assert container.last == Termination(137, reason="OOMKilled", started_at=NOON, finished_at=NOON)


def test_a_healthy_pod_keeps_no_conditions() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DisruptionTarget", "status": "False"}]}
    pod = parse.pod({"status": status})
    assert pod.ready
    assert pod.conditions == ()


def test_a_statefulset_keeps_what_matters() -> None:
    document = {
        "metadata": {
            "namespace": "default",
            "name": "store",
            "generation": 3,
            "labels": {LABEL_STACK: "store-x"},
            "annotations": {ANNOTATION_SPEC_HASH: "abc"},
            "deletionTimestamp": "2026-01-01T12:00:00Z",
        },
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 2, "replicas": 3, "readyReplicas": 1, "updateRevision": "store-b"},
    }
    assert parse.statefulset(document) == StatefulSet(
        "default",
        "store",
        stack="store-x",
        digest="abc",
        generation=3,
        observed_generation=2,
        replicas=3,
        current_replicas=3,
        ready_replicas=1,
        update_revision="store-b",
        deleted=NOON,
    )


def test_a_statefulset_without_replicas_has_one() -> None:
    assert parse.statefulset({"spec": {}}).replicas == 1


@pytest.mark.parametrize(
    ("document", "count", "last"),
    [
        ({"count": 4, "firstTimestamp": "2026-01-01T12:00:00Z", "lastTimestamp": "2026-01-01T12:00:00Z"}, 4, NOON),
        ({"eventTime": "2026-01-01T12:00:00.000000Z", "firstTimestamp": None, "lastTimestamp": None}, 1, NOON),
        (
            {
                "eventTime": "2026-01-01T11:00:00.000000Z",
                "series": {"count": 7, "lastObservedTime": "2026-01-01T12:00:00.000000Z"},
            },
            7,
            NOON,
        ),
    ],
)
def test_both_forms_of_events_are_understood(document: dict[str, Any], count: int, last: datetime) -> None:
    event = parse.event(document)
    assert (event.count, event.last) == (count, last)
    assert event.first is not None


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
KEYS = [
    "metadata", "spec", "status", "labels", "annotations", "containers", "containerStatuses", "initContainerStatuses",
    "state", "lastState", "waiting", "running", "terminated", "conditions", "involvedObject", "series", "resources",
    "requests", "startedAt", "finishedAt", "creationTimestamp", "deletionTimestamp", "firstTimestamp", "count",
    "replicas", "restartCount", "exitCode", "name", "image", "message", "reason", "type", LABEL_STACK,
]  # fmt: skip
odd = st.recursive(
    json | st.sampled_from(["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "2026-01-01T12:00:00", "\ud800"]),
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "function", [parse.pod, parse.statefulset, parse.service, parse.claim, parse.event, parse.namespace]
)
def test_any_document_gives_a_value(function: Callable[[Any], object]) -> None:
    @settings(max_examples=60)
    @given(st.dictionaries(st.sampled_from(KEYS), odd, max_size=6))
    def check(document: dict[str, Any]) -> None:
        value = function(document)
        assert hash(value) == hash(function(document))

    check()


@given(
    st.dictionaries(
        st.sampled_from(["firstTimestamp", "lastTimestamp", "eventTime"]), st.text() | st.datetimes().map(str)
    )
)
def test_times_always_have_a_zone(document: dict[str, str]) -> None:
    event: Event = parse.event(document)
    assert all(time is None or time.tzinfo is not None for time in (event.first, event.last))


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "2026-13-01", "soon", ""])
def test_a_time_that_is_none_counts_as_absent(text: str) -> None:
    assert parse.pod({"metadata": {"creationTimestamp": text}}).created is None


def test_a_message_is_cut_to_a_bounded_length() -> None:
    assert len(parse.pod({"status": {"message": "x" * 100_000}}).message) == parse.MESSAGE_LENGTH


def test_a_pod_without_an_ordinal_is_told_apart() -> None:
    assert Pod("default", "alone").ordinal == -1
