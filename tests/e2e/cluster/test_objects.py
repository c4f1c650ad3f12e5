"""Questions to the API server itself: whose is it, is it gone, what did it say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from provisioner.cluster import PodRef
from provisioner.cluster.api import CLAIMS, PODS, SERVICES, STATEFULSETS
from provisioner.errors import PermanentError
from provisioner.identity import LABEL_STACK


def test_the_cluster_has_one_identity(lab: Any, settings: Any) -> None:
    first = lab.client.cluster_id()
    assert len(first) == 36
    assert type(lab.client)(settings).cluster_id() == first


def test_a_namespace_exists_or_does_not(lab: Any) -> None:
    assert lab.client.namespace_exists(lab.namespace)
    assert not lab.client.namespace_exists("no-such-namespace")


def test_what_is_ours_is_not_foreign(lab: Any, spec: Callable[..., Any]) -> None:
    assert lab.client.foreign(lab.identity()) == []
    lab.apply(lab.identity(), spec(replicas=0))
    assert lab.client.foreign(lab.identity()) == []


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"labels": {LABEL_STACK: "another"}}, "the data service stack 'another'"),
        (
            {"labels": {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "shop"}},
            "Helm, instance 'shop'",
        ),
        ({}, "somebody else (written by tests)"),
    ],
)
def test_a_foreign_object_of_our_name_is_reported_with_its_owner(
    lab: Any, metadata: dict[str, Any], owner: str
) -> None:
    lab.put(SERVICES, {"metadata": {"name": "store", **metadata}, "spec": {"ports": [{"port": 80}]}})
    (found,) = lab.client.foreign(lab.identity())
    assert (found.kind, found.namespace, found.name, found.owner) == ("Service", lab.namespace, "store", owner)
    assert lab.client.remaining(lab.identity()) == []
    assert lab.client.delete_labelled(lab.identity()) == []
    assert [item.kind for item in lab.client.foreign(lab.identity())] == ["Service"]


def test_what_remains_is_true_while_pods_terminate(
    lab: Any, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    identity = lab.identity()
    lab.apply(identity, spec(replicas=2))
    where = lab.namespace
    pods = [f"Pod {where}/store-{ordinal}" for ordinal in range(2)]

    def running() -> bool:
        listed = lab.call("GET", PODS.path(where))["items"]
        return len(listed) == 2 and all(item["status"]["phase"] == "Running" for item in listed)

    def hold(finalizers: list[str] | None) -> None:
        for ordinal in range(2):
            body = {"metadata": {"finalizers": finalizers}}
            lab.call("PATCH", PODS.path(where, f"store-{ordinal}"), body, "application/merge-patch+json")

    def terminating() -> bool:
        listed = lab.call("GET", PODS.path(where))["items"]
        return all("deletionTimestamp" in item["metadata"] for item in listed)

    eventually(running, "both pods running")
    # They go when this test lets them go.
    hold(["tests/hold"])
    assert lab.client.remaining(identity) == [f"StatefulSet {where}/store", f"Service {where}/store", *pods]
    assert lab.client.delete_labelled(identity) == [f"StatefulSet {where}/store", f"Service {where}/store"]
    eventually(terminating, "both pods terminating")
    assert lab.client.remaining(identity) == pods
    hold(None)
    eventually(lambda: lab.client.remaining(identity) == [], "nothing left")
    assert lab.client.delete_labelled(identity) == []


def test_claims_remain_only_when_they_are_to_go(lab: Any, eventually: Callable[..., Any]) -> None:
    identity = lab.identity()
    claim = {
        "metadata": {"name": "data-store-0", "labels": identity.labels()},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    lab.put(CLAIMS, claim)
    assert lab.client.remaining(identity) == []
    # A finalizer keeps it (the API server sets kubernetes.io/pvc-protection itself).
    body = {"metadata": {"finalizers": ["tests/hold"]}}
    lab.call("PATCH", CLAIMS.path(lab.namespace, "data-store-0"), body, "application/merge-patch+json")
    lab.delete(CLAIMS, "data-store-0")
    assert lab.client.remaining(identity) == [f"PersistentVolumeClaim {lab.namespace}/data-store-0"]
    body = {"metadata": {"finalizers": None}}
    lab.call("PATCH", CLAIMS.path(lab.namespace, "data-store-0"), body, "application/merge-patch+json")
    eventually(lambda: lab.client.remaining(identity) == [], "the claim gone")


def test_a_pod_is_deleted_by_its_uid_alone(lab: Any, spec: Callable[..., Any], eventually: Callable[..., Any]) -> None:
    lab.apply(lab.identity(), spec(replicas=1))

    def first() -> Any:
        listed = lab.call("GET", PODS.path(lab.namespace))["items"]
        return listed[0]["metadata"]["uid"] if listed else None

    uid = eventually(first, "a pod")
    assert not lab.client.delete_pod(lab.namespace, "store-0", "00000000-0000-0000-0000-000000000000")
    assert not lab.client.delete_pod(lab.namespace, "store-9", uid)
    assert first() == uid
    assert lab.client.delete_pod(lab.namespace, "store-0", uid)
    eventually(lambda: first() not in (None, uid), "its successor")


def test_orphans_of_a_killed_run_are_deleted_too(
    lab: Any, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    identity = lab.identity()
    lab.apply(identity, spec(replicas=1))
    eventually(lambda: any("Pod" in item for item in lab.client.remaining(identity)), "a pod")
    lab.call("DELETE", STATEFULSETS.path(lab.namespace, "store") + "?propagationPolicy=Orphan")
    eventually(lambda: f"StatefulSet {lab.namespace}/store" not in lab.client.remaining(identity), "orphaned")
    assert f"Pod {lab.namespace}/store-0" in lab.client.delete_labelled(identity)
    eventually(lambda: lab.client.remaining(identity) == [], "nothing left")


def test_logs_of_this_run_and_the_one_before(
    lab: Any, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    script = "for i in 1 2 3; do echo line $i; done; printf 'no end \\377'; exit 7"
    lab.apply(lab.identity(), spec(replicas=1, command=("sh", "-c", script)))
    reference = PodRef(lab.namespace, "store-0", "data-service", previous=True)
    last = eventually(lambda: lab.client.last_lines(reference, tail=2), "the log of the first run")
    assert last == "line 3\nno end \ufffd"
    lines = list(lab.client.logs(lab.namespace, "store-0", previous=True))
    assert lines == ["line 1", "line 2", "line 3", "no end \ufffd"]


def test_a_log_is_followed_while_it_grows(lab: Any, spec: Callable[..., Any], eventually: Callable[..., Any]) -> None:
    script = "echo begin; while [ ! -e /tmp/go ]; do usleep 50000; done; echo end; exec nc -ll -p 9000 -e cat"
    lab.apply(lab.identity(), spec(replicas=1, command=("sh", "-c", script)))
    eventually(lambda: lab.client.last_lines(PodRef(lab.namespace, "store-0", "data-service")) == "begin", "begin")
    with lab.client.logs(lab.namespace, "store-0", follow=True) as lines:
        assert next(iter(lines)) == "begin"


def test_a_log_that_does_not_exist_is_a_clear_error(lab: Any, spec: Callable[..., Any]) -> None:
    with pytest.raises(PermanentError, match="store-0"):
        lab.client.logs(lab.namespace, "store-0")
    assert lab.client.last_lines(PodRef(lab.namespace, "store-0", "data-service", previous=True)) == ""


def test_hostile_names_stay_within_their_path(lab: Any) -> None:
    with pytest.raises(PermanentError):
        lab.client.logs("../../../version", "x")
