"""A diagnosis of anything: no object that the API server could send makes it fail, or answer in two ways."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster import Snapshot, diagnose
from provisioner.cluster.findings.rules import RULES
from provisioner.cluster.objects import Claim, Condition, Container, Event, Pod, StatefulSet, Termination
from provisioner.spec import DataServiceSpec, Port

SPEC = DataServiceSpec(image="localhost/store:1", ports=(Port(name="grpc", port=9000),), replicas=2)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
texts = st.text(max_size=3) | st.sampled_from(
    ["CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "RunContainerError", "CreateContainerConfigError",
     "OOMKilled", "Unhealthy", "Liveness probe failed", "Readiness probe failed", "FailedCreate", "Evicted",
     "exceeded quota: q, x", "0/3 nodes are available: 3 Insufficient cpu.",
     "create Pod x-0 in StatefulSet x failed error: boom", "Failed",
     "DisruptionTarget", "PodScheduled", "DeletionByTaintManager", "NodeNotReady", "BackOff", "Unknown", "Pod", "x-0"]
)  # fmt: skip
times = st.none() | st.sampled_from([NOW, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]) | (
    st.datetimes(timezones=st.just(UTC))
)  # fmt: skip
numbers = st.integers(-(2**31), 2**31)
ends = st.none() | st.builds(
    Termination, numbers, signal=numbers, reason=texts, message=texts, started_at=times, finished_at=times
)
containers = st.builds(
    Container, name=texts, image=texts, init=st.booleans(), ready=st.booleans(), restarts=numbers, waiting_reason=texts,
    waiting_message=texts, running_since=times, terminated=ends, last=ends,
)  # fmt: skip
conditions = st.builds(Condition, type=texts, status=texts, reason=texts, message=texts, since=times)
name = st.sampled_from(["x-0", "x-1", "x", ""])
pods = st.builds(
    Pod, namespace=name, name=name, uid=st.sampled_from(["", "1"]), revision=st.sampled_from(["", "a", "b"]),
    node=texts, phase=texts, reason=texts, message=texts, ready=st.booleans(), created=times, deleted=times,
    conditions=st.lists(conditions, max_size=2).map(tuple), containers=st.lists(containers, max_size=2).map(tuple),
)  # fmt: skip
events = st.builds(
    Event, namespace=name, name=name, kind=st.sampled_from(["Pod", "StatefulSet", "PersistentVolumeClaim"]),
    object=name, uid=st.sampled_from(["", "1"]), reason=texts, message=texts, count=numbers, first=times, last=times,
)  # fmt: skip
snapshots = st.builds(
    Snapshot,
    fresh=st.booleans(),
    statefulset=st.none()
    | st.builds(StatefulSet, namespace=name, name=name, digest=texts, deleted=times, replicas=numbers),
    pods=st.lists(pods, max_size=2).map(tuple),
    claims=st.lists(st.builds(Claim, namespace=name, name=name, phase=texts, storage_class=texts), max_size=1).map(
        tuple
    ),
    events=st.lists(events, max_size=3).map(tuple),
    namespace_deleted=times,
)


@given(snapshots, st.dictionaries(name, texts, max_size=2), times)
def test_any_snapshot_is_judged_and_always_the_same_way(
    snapshot: Snapshot, logs: dict[str, str], now: datetime | None
) -> None:
    diagnosis = diagnose(snapshot, SPEC, now or NOW, logs)
    shuffled = replace(snapshot, pods=snapshot.pods[::-1], claims=snapshot.claims[::-1])
    assert diagnose(shuffled, SPEC, now or NOW, logs) == diagnosis
    if diagnosis is not None:
        assert diagnosis.reason in RULES
        assert "\n" not in diagnosis.summary
        assert not diagnosis.final or (snapshot.fresh and diagnosis.level == "error")
