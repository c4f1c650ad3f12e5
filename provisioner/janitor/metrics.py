"""What the janitor counts, for Prometheus."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, write_to_textfile

SWEEPS = Counter("provisioner_gc_sweeps", "Sweeps finished", ["result"])
SWEEP_SECONDS = Histogram(
    "provisioner_gc_sweep_seconds",
    "Duration of sweeps",
    buckets=(0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)
LAST_SUCCESS = Gauge("provisioner_gc_last_success_timestamp_seconds", "End of the last sweep that left nothing undone")
SERVICES = Gauge("provisioner_gc_services", "Services of the last sweep", ["verdict", "reason"])
OLDEST_ORPHAN = Gauge(
    "provisioner_gc_oldest_orphan_seconds", "Age of the oldest service that is to go and is still there"
)
ACTIONS = Counter("provisioner_gc_actions", "What sweeps did", ["action", "result"])
CHECKPOINTS_READ = Counter("provisioner_gc_checkpoints_read", "Checkpoints read")
STALLED = Gauge("provisioner_gc_stalled", "Removals that failed so often that a person should look")
LEADER = Gauge("provisioner_gc_leader", "Whether this replica is the elected one")

_ALL = (SWEEPS, SWEEP_SECONDS, LAST_SUCCESS, SERVICES, OLDEST_ORPHAN, ACTIONS, CHECKPOINTS_READ, STALLED, LEADER)


def write(path: Path) -> None:
    """Write the janitor's metrics into a file, whole or not at all: for the textfile collector of a node exporter.

    Args:
        path: The file; its name should end in `.prom`.
    """
    registry = CollectorRegistry()
    for metric in _ALL:
        registry.register(metric)
    write_to_textfile(str(path), registry)
