"""The shared watch follows what really happens to a service, and polls cost nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from prometheus_client import REGISTRY

from provisioner.cluster import ClusterCache, readiness, stuck_pods
from provisioner.cluster.api import STATEFULSETS


def requests() -> float:
    metrics = [metric for metric in REGISTRY.collect() if metric.name == "provisioner_cluster_requests"]
    samples = [sample for metric in metrics for sample in metric.samples if sample.name.endswith("_total")]
    return sum(sample.value for sample in samples)


def test_create_scale_update_and_delete_are_seen(
    lab: Any, cache: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    identity, told = lab.identity(), set[str]()
    cache.subscribe(told.add)
    assert cache.snapshot(identity).statefulset is None

    wanted = spec(replicas=2)
    lab.apply(identity, wanted)
    eventually(lambda: readiness(cache.snapshot(identity), wanted, wanted.digest()).done, "two replicas ready")
    before = cache.snapshot(identity)
    assert [pod.name for pod in before.pods] == ["store-0", "store-1"]
    assert before.service is not None
    # A subscriber is told a moment after the change can be seen.
    eventually(lambda: identity.stack in told, "the subscriber told")
    assert cache.stack_of(lab.namespace, "store") == identity.stack

    wanted = spec(replicas=3)
    assert not readiness(cache.snapshot(identity), wanted, wanted.digest()).done
    lab.apply(identity, wanted)
    eventually(lambda: readiness(cache.snapshot(identity), wanted, wanted.digest()).done, "three replicas ready")
    assert [pod.uid for pod in cache.snapshot(identity).pods][:2] == [pod.uid for pod in before.pods]

    wanted = spec(replicas=3, env={"EDITION": "2"})
    lab.apply(identity, wanted)
    revision = before.statefulset.update_revision if before.statefulset else ""

    def updated() -> bool:
        snapshot = cache.snapshot(identity)
        done = readiness(snapshot, wanted, wanted.digest()).done
        # Promise: never ready while a pod of the old revision is left.
        assert not done or all(pod.revision != revision for pod in snapshot.pods)
        return done

    eventually(updated, "the new revision ready")

    lab.delete(STATEFULSETS, "store")
    eventually(lambda: cache.snapshot(identity).statefulset is None, "StatefulSet gone")
    eventually(lambda: not cache.snapshot(identity).pods, "pods gone")
    assert cache.stack_of(lab.namespace, "store") is None


def test_a_poll_makes_no_request(
    lab: Any, watch_steadily: Callable[..., ClusterCache], spec: Callable[..., Any]
) -> None:
    identity, wanted = lab.identity(), spec(replicas=1)
    lab.apply(identity, wanted)
    cache = watch_steadily(lab.client)
    before = requests()
    for _ in range(1000):
        readiness(cache.snapshot(identity), wanted, wanted.digest())
    assert requests() == before


def test_one_service_is_not_shown_what_belongs_to_another(
    lab: Any, cache: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    one, two = lab.identity("one"), lab.identity("two")
    lab.apply(one, spec(replicas=1))
    lab.apply(two, spec(replicas=0))
    eventually(lambda: cache.snapshot(one).pods, "a pod of the first")
    eventually(lambda: cache.snapshot(two).statefulset, "the second")
    assert cache.snapshot(two).pods == ()
    assert [pod.stack for pod in cache.snapshot(one).pods] == [one.stack]


def test_only_the_namespaces_asked_for_are_watched(
    lab: Any, watch: Callable[..., ClusterCache], spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    here, elsewhere = watch(lab.client, namespaces=[lab.namespace]), watch(lab.client, namespaces=["kube-public"])
    lab.apply(lab.identity(), spec(replicas=0))
    eventually(lambda: here.snapshot(lab.identity()).statefulset, "the service")
    assert elsewhere.wait_synced(30)
    assert elsewhere.snapshot(lab.identity()).statefulset is None
    eventually(lambda: elsewhere.snapshot(lab.identity()).fresh, "fresh")


def test_a_broken_revision_does_not_hold_up_its_repair(
    lab: Any, cache: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    """kubernetes#60164: a StatefulSet waits for the broken pod, unless somebody deletes it."""
    identity = lab.identity()
    bad = spec(replicas=2, image="127.0.0.1:5999/missing:1", pod_management_policy="OrderedReady")
    lab.apply(identity, bad)
    eventually(lambda: cache.snapshot(identity).pods, "a pod of the bad image")
    assert stuck_pods(cache.snapshot(identity)) == ()

    good = spec(replicas=2, pod_management_policy="OrderedReady")
    lab.apply(identity, good)

    def repaired() -> bool:
        snapshot = cache.snapshot(identity)
        for pod in stuck_pods(snapshot):
            lab.client.delete_pod(pod.namespace, pod.name, pod.uid)
        return readiness(snapshot, good, good.digest()).done

    eventually(repaired, "the repaired service ready")


def test_an_ending_cache_leaves_no_thread(
    lab: Any,
    watch: Callable[..., ClusterCache],
    watching: Callable[[], set[threading.Thread]],
    eventually: Callable[..., Any],
) -> None:
    before = watching()
    cache = watch(lab.client)
    assert cache.wait_synced(30)
    assert len(watching() - before) == 6
    cache.stop()
    eventually(lambda: watching() <= before, "no thread left")


def test_a_subscriber_that_fails_stops_nobody_else(
    lab: Any, cache: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    told = set[str]()

    def fail(_: str) -> None:
        raise RuntimeError("a fault of the subscriber")

    cache.subscribe(fail)
    cache.subscribe(told.add)
    lab.apply(lab.identity(), spec(replicas=0))
    eventually(lambda: told, "the second subscriber told")
    assert cache.synced()
