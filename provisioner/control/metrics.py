"""What control counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

OPERATIONS = Counter("provisioner_operations", "Operations finished", ["kind", "result"])
RUN_SECONDS = Histogram(
    "provisioner_operation_seconds",
    "Duration of operations",
    ["kind"],
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
WAIT_SECONDS = Histogram(
    "provisioner_operation_wait_seconds",
    "Time between the moment when an operation was due and its start",
    ["kind"],
    buckets=(0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300),
)
QUEUED = Gauge("provisioner_queue_depth", "Operations that are due and wait for a worker")
RUNNING = Gauge("provisioner_operations_running", "Operations that run")
