"""What the janitor counts, for Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, write_to_textfile

from provisioner.errors import UsageError

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

ALL = (SWEEPS, SWEEP_SECONDS, LAST_SUCCESS, SERVICES, OLDEST_ORPHAN, ACTIONS, CHECKPOINTS_READ, STALLED, LEADER)


_LAST_SUCCESS_LINE = re.compile(r"^provisioner_gc_last_success_timestamp_seconds (\S+)$", re.MULTILINE)


def write(path: Path) -> None:
    """Write the janitor's metrics into a file, whole or not at all: for the textfile collector of a node exporter.

    The time of the last success is kept from the file that is replaced: a
    process that sweeps once has none of its own unless it succeeded.

    Args:
        path: The file; its name should end in `.prom`.

    Raises:
        UsageError: It cannot be written.
    """
    registry = CollectorRegistry()
    for metric in ALL:
        registry.register(metric)
    try:
        before = _LAST_SUCCESS_LINE.search(path.read_text()) if path.exists() else None
        if before is not None and not registry.get_sample_value("provisioner_gc_last_success_timestamp_seconds"):
            LAST_SUCCESS.set(float(before[1]))
        write_to_textfile(str(path), registry)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"metrics cannot be written to {path}: {error}", hint="name a file that can be written in --metrics-file"
        ) from error
