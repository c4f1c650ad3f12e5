"""From a live cluster to a sentence: watch, diagnosis and the log that it asks for, together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.cluster import ClusterCache, Diagnosis, Snapshot, diagnose


@pytest.mark.parametrize(
    ("fields", "reason", "named"),
    [
        ({"image": "127.0.0.1:5999/missing:1"}, "RegistryUnreachable", "'127.0.0.1:5999/missing:1'"),
        ({"command": ("sh", "-c", "echo no such shard >&2; exit 3")}, "CrashLoop", "exit code 3; last line: no such"),
        ({"command": ("graph-store",)}, "ContainerStartFailed", "'graph-store'"),
        ({"node_selector": {"gpu": "a100"}}, "Unschedulable", "node affinity/selector"),
        ({"service_account": "absent"}, "ServiceAccountMissing", "'absent'"),
    ],
)
def test_a_failure_names_its_cause(
    fields: dict[str, Any],
    reason: str,
    named: str,
    lab: Any,
    cache: ClusterCache,
    spec: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    wanted = spec(**fields)
    lab.apply(lab.identity(), wanted)

    def told() -> Diagnosis | None:
        diagnosis = diagnose(cache.snapshot(lab.identity()), wanted, datetime.now(UTC))
        return diagnosis if diagnosis is not None and diagnosis.reason == reason else None

    diagnosis = eventually(told, reason)
    assert named in diagnosis.summary
    assert lab.namespace in diagnosis.summary
    assert diagnosis.hint


def test_the_log_that_a_diagnosis_asks_for_can_be_fetched(
    lab: Any, cache: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    # A clean exit leaves nothing in the status: only the log tells.
    wanted = spec(replicas=1, command=("sh", "-c", "echo the graph is empty, nothing to serve"))
    lab.apply(lab.identity(), wanted)

    def crashed() -> Snapshot | None:
        snapshot = cache.snapshot(lab.identity())
        diagnosis = diagnose(snapshot, wanted, datetime.now(UTC))
        return snapshot if diagnosis is not None and diagnosis.reason == "CrashLoop" else None

    snapshot = eventually(crashed, "the crash")
    first = diagnose(snapshot, wanted, datetime.now(UTC))
    assert first is not None
    assert first.wants_logs is not None
    lines = eventually(lambda: lab.client.last_lines(first.wants_logs), "the log")
    told = diagnose(snapshot, wanted, datetime.now(UTC), {first.wants_logs.pod: lines})
    assert told is not None
    assert "ended with exit code 0" in told.summary
    assert told.summary.endswith("; last line: the graph is empty, nothing to serve")
    assert told.wants_logs is None
