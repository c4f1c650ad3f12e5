"""What the engine counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

PROCESSES = Gauge("provisioner_engine_processes", "Processes of the engine that run")
STARTED = Counter("provisioner_engine_processes_started", "Processes of the engine that were started", ["verb"])
