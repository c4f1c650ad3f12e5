"""GetTaskLogs and GetTaskMetrics: what can be told of a service beside its phase.

Metrics are what the shared watch knows: replicas and restarts. What a replica
uses of its processor and memory is the business of the cluster's own metrics,
and nothing is made up for it here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from flyteidl.admin import agent_pb2
from flyteidl.core.metrics_pb2 import ExecutionMetricResult
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from provisioner.control.status import Status

if TYPE_CHECKING:
    from provisioner.cluster import Snapshot
    from provisioner.control.replica_logs import LogPage

REPLICAS, RESTARTS, STATUS = "replicas", "restarts", "status"
METRICS = (REPLICAS, RESTARTS, STATUS)


def logs_answer(page: LogPage) -> agent_pb2.GetTaskLogsResponse:
    """One page of logs as Flyte takes it.

    Args:
        page: The lines.
    """
    body = agent_pb2.GetTaskLogsResponseBody(results=[str(entry) for entry in page.entries])
    for entry in page.entries:
        stamp = Timestamp()
        if entry.stamp:
            stamp.FromJsonString(entry.stamp)
        line = agent_pb2.LogLine(message=str(entry), originator=agent_pb2.USER)
        if entry.stamp:
            line.timestamp.CopyFrom(stamp)
        body.structured_lines.append(line)
    return agent_pb2.GetTaskLogsResponse(body=body)


def logs_header(page: LogPage) -> agent_pb2.GetTaskLogsResponse:
    """The token of a page as Flyte takes it; it stands before the lines.

    Args:
        page: The lines.
    """
    return agent_pb2.GetTaskLogsResponse(header=agent_pb2.GetTaskLogsResponseHeader(token=page.token))


def metrics_answer(
    status: Status, snapshot: Snapshot, queries: Collection[str] = ()
) -> agent_pb2.GetTaskMetricsResponse:
    """The metrics of a service now.

    Args:
        status: How it is.
        snapshot: What the cluster shows of it.
        queries: Names of metrics; all when empty. One that there is none of is not answered.
    """
    found: dict[str, dict[str, Any]] = {
        REPLICAS: {"wanted": status.wanted, "ready": status.ready, "pods": len(snapshot.pods)},
        RESTARTS: {pod.name: sum(container.restarts for container in pod.containers) for pod in snapshot.pods},
        STATUS: {"phase": status.phase.value, "reason": status.reason, "fresh": snapshot.fresh},
    }
    chosen = [name for name in METRICS if not queries or name in queries]
    return agent_pb2.GetTaskMetricsResponse(results=[_result(name, found[name]) for name in chosen])


def _result(name: str, values: dict[str, Any]) -> ExecutionMetricResult:
    data = Struct()
    data.update(values)
    return ExecutionMetricResult(metric=name, data=data)
