"""Ready means: each replica of the present specification is ready, and nothing is under way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster import Snapshot, readiness, stuck_pods
from provisioner.cluster.objects import Pod, Service, StatefulSet
from provisioner.spec import DataServiceSpec, Port

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DIGEST = "0123456789abcdef"


def spec(replicas: int = 3) -> DataServiceSpec:
    return DataServiceSpec(image="localhost/store:1", ports=(Port(name="grpc", port=9000),), replicas=replicas)


def healthy(replicas: int = 3) -> Snapshot:
    statefulset = StatefulSet(
        "default",
        "store",
        uid="1",
        digest=DIGEST,
        generation=2,
        observed_generation=2,
        replicas=replicas,
        current_replicas=replicas,
        ready_replicas=replicas,
        updated_replicas=replicas,
        current_revision="store-a",
        update_revision="store-a",
    )
    pods = tuple(
        Pod("default", f"store-{ordinal}", uid=str(ordinal), revision="store-a", phase="Running", ready=True)
        for ordinal in range(replicas)
    )
    return Snapshot(statefulset=statefulset, service=Service("default", "store"), pods=pods)


def changed(snapshot: Snapshot, **fields: object) -> Snapshot:
    assert snapshot.statefulset is not None
    return replace(snapshot, statefulset=replace(snapshot.statefulset, **fields))  # type: ignore[arg-type]


def first_pod(snapshot: Snapshot, **fields: object) -> Snapshot:
    first, *others = snapshot.pods
    return replace(snapshot, pods=(replace(first, **fields), *others))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("replicas", "message"),
    [(1, "its replica is ready"), (3, "all 3 replicas are ready"), (50, "all 50 replicas are ready")],
)
def test_a_service_whose_replicas_are_all_ready_is_ready(replicas: int, message: str) -> None:
    answer = readiness(healthy(replicas), spec(replicas), DIGEST)
    assert (answer.ready, answer.wanted, answer.done) == (replicas, replicas, True)
    assert answer.message == message


def test_a_paused_service_is_ready_once_no_pod_is_left() -> None:
    assert readiness(healthy(0), spec(0), DIGEST).done
    left = replace(healthy(0), pods=(Pod("default", "store-0", deleted=NOW),))
    assert readiness(left, spec(0), DIGEST).message == "1 pods are still to be removed"


VIOLATIONS = {
    "not fresh": (lambda s: replace(s, fresh=False, stale_reason="no word about pods for 50 s"), "no word about pods"),
    "no StatefulSet": (lambda s: replace(s, statefulset=None), "does not exist yet"),
    "no Service": (lambda s: replace(s, service=None), "headless Service"),
    "Service deleted": (lambda s: replace(s, service=Service("default", "store", deleted=NOW)), "headless Service"),
    "namespace deleted": (lambda s: replace(s, namespace_deleted=NOW), "namespace default is being deleted"),
    "deleted": (lambda s: changed(s, deleted=NOW), "being deleted"),
    "another specification": (lambda s: changed(s, digest="f" * 16), "not of this specification"),
    "scaled by hand": (lambda s: changed(s, replicas=2), "asks for 2 replicas, not 3"),
    "not observed": (lambda s: changed(s, generation=3), "has not seen it"),
    "pods missing": (lambda s: changed(s, current_replicas=2), "2 of 3 pods were made"),
    "pods too many": (lambda s: changed(s, current_replicas=4), "1 pods are still to be removed"),
    "rollout under way": (lambda s: changed(s, update_revision="store-b"), "not completed"),
    "revision unknown": (lambda s: changed(s, current_revision="", update_revision=""), "not completed"),
    "old revision left": (lambda s: changed(s, updated_replicas=2), "2 of 3 pods are of the new revision"),
    "counter says not ready": (lambda s: changed(s, ready_replicas=2), "2 of 3 replicas are ready"),
    "counter says too many": (lambda s: changed(s, ready_replicas=4), "1 replicas too many are ready"),
    "pod says not ready": (lambda s: first_pod(s, ready=False), "2 of 3 replicas are ready"),
    "pod goes": (lambda s: first_pod(s, deleted=NOW), "2 of 3 replicas are ready"),
    "pod of another revision": (lambda s: first_pod(s, revision="store-z"), "2 of 3 replicas are ready"),
    "pods not seen": (lambda s: replace(s, pods=()), "0 of 3 replicas are ready"),
    "pod too many": (
        lambda s: replace(s, pods=(*s.pods, Pod("default", "store-3", revision="store-a"))),
        "1 pods are still to be removed",
    ),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_any_violation_means_not_ready_and_is_named(case: str) -> None:
    violate, message = VIOLATIONS[case]
    answer = readiness(violate(healthy()), spec(), DIGEST)
    assert not answer.done
    assert message in answer.message


@given(st.sets(st.sampled_from(sorted(VIOLATIONS)), min_size=1), st.randoms())
def test_no_set_of_violations_adds_up_to_ready(names: set[str], random: object) -> None:
    order = sorted(names)
    random.shuffle(order)  # type: ignore[attr-defined]
    order.sort(key="no StatefulSet".__eq__)  # nothing can be changed in what is not there
    snapshot = healthy()
    for name in order:
        if snapshot.pods or "pod" not in name.split():
            snapshot = VIOLATIONS[name][0](snapshot)
    if snapshot == healthy():
        return
    answer = readiness(snapshot, spec(), DIGEST)
    assert not answer.done
    assert 0 <= answer.ready <= answer.wanted


counts = st.integers(min_value=-1, max_value=4)
revisions = st.sampled_from(["", "store-a", "store-b"])
times = st.sampled_from([None, NOW])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    statefulset = st.builds(
        StatefulSet,
        namespace=st.just("default"),
        name=st.just("store"),
        digest=st.sampled_from(["", DIGEST]),
        generation=counts,
        observed_generation=counts,
        replicas=counts,
        current_replicas=counts,
        ready_replicas=counts,
        updated_replicas=counts,
        current_revision=revisions,
        update_revision=revisions,
        deleted=times,
    )
    pods = st.builds(
        Pod, namespace=st.just("default"), name=st.just("p-0"), revision=revisions, ready=st.booleans(), deleted=times
    )
    return draw(
        st.builds(
            Snapshot,
            fresh=st.booleans(),
            statefulset=st.none() | statefulset,
            service=st.sampled_from([None, Service("default", "store"), Service("default", "store", deleted=NOW)]),
            pods=st.lists(pods, max_size=4).map(tuple),
            namespace_deleted=times,
        )
    )


@given(snapshots(), st.integers(0, 3))
def test_ready_implies_every_condition(snapshot: Snapshot, wanted: int) -> None:
    answer = readiness(snapshot, spec(wanted), DIGEST)
    assert 0 <= answer.ready <= wanted
    assert answer.message
    found = snapshot.statefulset
    if answer.done:
        assert snapshot.fresh
        assert found is not None
        assert snapshot.service is not None
        assert (found.digest, found.deleted, snapshot.namespace_deleted) == (DIGEST, None, None)
        assert found.replicas == found.current_replicas == found.ready_replicas == wanted
        assert found.observed_generation >= found.generation
        assert answer.ready == wanted == len(snapshot.pods)
        assert all(pod.ready and pod.revision == found.update_revision for pod in snapshot.pods)


@given(st.integers(1, 3))
def test_health_is_ready_whatever_the_size(wanted: int) -> None:
    assert readiness(healthy(wanted), spec(wanted), DIGEST).done


def updating(**pod: object) -> Snapshot:
    return first_pod(changed(healthy(), update_revision="store-b", ready_replicas=2), ready=False, **pod)


def test_a_broken_pod_of_the_old_revision_holds_an_update_up() -> None:
    assert [pod.name for pod in stuck_pods(updating())] == ["store-0"]


@pytest.mark.parametrize(
    "snapshot",
    [
        healthy(),
        first_pod(healthy(), ready=False),  # no update is waiting for it
        updating(revision="store-b"),  # it is the new one, and starting
        updating(revision=""),  # nothing is known of it
        updating(deleted=NOW),  # somebody did it already
        replace(updating(), fresh=False),  # it may be ready by now
        changed(updating(), generation=9),  # the revisions are of an older specification
        changed(updating(), deleted=NOW),
        replace(updating(), statefulset=None),
    ],
)
def test_no_other_pod_is_called_stuck(snapshot: Snapshot) -> None:
    assert stuck_pods(snapshot) == ()
