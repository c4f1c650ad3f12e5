"""What the registry and the gateway count, for Prometheus.

Ages are computed when they are scraped: a gauge that a stuck watch no longer
sets would look healthy for ever, which is the very fault it should show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from provisioner.registry.table import EMPTY, RoutingTable

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 100)


class Metrics(Collector):
    """All metrics, in one Prometheus registry.

    Args:
        registry: Where they are collected; a private one by default.
        clock: Seconds, the clock of the tables' times.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._clock = clock
        self._table: Callable[[], RoutingTable] = lambda: EMPTY
        self.requests = Counter(
            "agent_gateway_requests",
            "Calls forwarded, by the agent that got them (none: refused here) and the gRPC code of the answer",
            ["agent", "method", "code"],
            registry=self.registry,
        )
        self.latency = Histogram(
            "agent_gateway_request_seconds",
            "Time from a call's arrival to its end, repeats included",
            ["agent", "method"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("agent_gateway_requests_in_flight", "Calls now running", registry=self.registry)
        self.retries = Counter(
            "agent_gateway_retries",
            "Times a call was sent again after UNAVAILABLE",
            ["agent", "method"],
            registry=self.registry,
        )
        self.rounds = Counter(
            "agent_registry_rounds", "Rounds of asking all agents", ["result"], registry=self.registry
        )
        self.silences = Counter(
            "agent_registry_agent_silences",
            "Rounds in which the agent gave no good answer",
            ["agent"],
            registry=self.registry,
        )
        self.round_seconds = Histogram("agent_registry_round_seconds", "Duration of a round", registry=self.registry)
        self.reloads = Counter(
            "agent_registry_config_reloads", "Readings of a changed configuration", ["result"], registry=self.registry
        )
        self.config_valid = Gauge(
            "agent_registry_config_valid",
            "1 while the configuration file is the one in use, 0 while it is broken and an older one is used",
            registry=self.registry,
        )
        self.config_valid.set(1)
        self.discovery_up: bool | None = None
        """Whether the latest look-up of labelled Services worked; None when there is none."""
        self.registry.register(self)

    def follow(self, table: Callable[[], RoutingTable]) -> None:
        """Name the place where the current table is found."""
        self._table = table

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The state of the agents at this moment; called by Prometheus' library."""
        table, now = self._table(), self._clock()
        up = GaugeMetricFamily(
            "agent_registry_agent_up", "1 when the agent answered the latest round", labels=["agent"]
        )
        age = GaugeMetricFamily(
            "agent_registry_agent_answer_age_seconds", "Seconds since the agent's last good answer", labels=["agent"]
        )
        stale = GaugeMetricFamily(
            "agent_registry_agent_stale",
            "1 while an agent's entries are kept although it does not answer",
            labels=["agent"],
        )
        served = GaugeMetricFamily(
            "agent_registry_routes", "Task types and versions routed to the agent", labels=["agent"]
        )
        counts = dict.fromkeys(table.agents, 0)
        for route in table.routes:
            counts[route.agent] += 1
        for name, status in table.agents.items():
            up.add_metric([name], float(not status.observation.error and status.observation.answered_at is not None))
            kept = status.stale and not status.expired and status.observation.answered_at is not None
            stale.add_metric([name], float(kept))
            served.add_metric([name], counts[name])
            if status.observation.answered_at is not None:
                age.add_metric([name], now - status.observation.answered_at)
        conflicts = GaugeMetricFamily(
            "agent_registry_conflicts", "Task types and versions that more than one agent announces"
        )
        conflicts.add_metric([], len(table.conflicts))
        unresolved = GaugeMetricFamily(
            "agent_registry_unresolved_entries", "agentForTaskTypes entries that name no known agent"
        )
        unresolved.add_metric([], len(table.unresolved))
        table_age = GaugeMetricFamily("agent_registry_table_age_seconds", "Seconds since the latest round ended")
        if table is not EMPTY:
            table_age.add_metric([], now - table.built_at)
        discovery = GaugeMetricFamily(
            "agent_registry_discovery_up", "1 when the latest look-up of labelled Services worked"
        )
        if self.discovery_up is not None:
            discovery.add_metric([], float(self.discovery_up))
        return [up, age, stale, served, conflicts, unresolved, table_age, discovery]
