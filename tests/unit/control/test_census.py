"""How many services are in which phase: what the cluster shows, and what only the queue knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from provisioner.cluster.objects import StatefulSet
from provisioner.control.census import PhaseCollector, census
from provisioner.control.queue import Intent, Kind, View
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import for_name
from provisioner.spec import parse_spec

NOW = datetime(2026, 5, 9, tzinfo=UTC)
REQUEST = ServiceRequest(
    for_name("p", "d", namespace="n", name="graph"),
    parse_spec({"image": "a", "ports": [{"name": "main", "port": 9000}]}),
    0.0,
)
READY = StatefulSet(
    name="graph",
    namespace="n",
    stack=REQUEST.stack,
    created=NOW,
    digest="d",
    generation=2,
    observed_generation=2,
    replicas=2,
    current_replicas=2,
    ready_replicas=2,
    updated_replicas=2,
    current_revision="r",
    update_revision="r",
)
APPLY = View(Intent(Kind.APPLY, REQUEST), None, False, None, "", 0, False, (), 0.0)
REMOVE = replace(APPLY, intent=Intent(Kind.REMOVE, REQUEST))


@pytest.mark.parametrize(
    ("found", "view", "phase"),
    [
        (READY, None, Phase.READY),
        (replace(READY, ready_replicas=1), None, Phase.STARTING),
        (replace(READY, observed_generation=1), None, Phase.STARTING),
        (replace(READY, updated_replicas=1), None, Phase.STARTING),
        (replace(READY, deleted=NOW), None, Phase.REMOVING),
        (None, APPLY, Phase.QUEUED),
        (READY, replace(APPLY, running=Kind.APPLY), Phase.APPLYING),
        (READY, replace(APPLY, settled=True), Phase.READY),
        (None, replace(APPLY, error=TransientError("away")), Phase.QUEUED),
        (None, replace(APPLY, settled=True, error=PermanentError("no")), Phase.FAILED),
        (READY, REMOVE, Phase.REMOVING),
        (READY, replace(REMOVE, settled=True), None),
    ],
)
def test_a_service_counts_once(found: StatefulSet | None, view: View | None, phase: Phase | None):
    counted = census([found] if found else [], [view] if view else [])
    assert {name for name, number in counted.items() if number} == ({phase} if phase else set())
    assert sum(counted.values()) == (1 if phase else 0)


def test_a_failure_that_is_remembered_counts_as_one():
    assert census([READY], [REMOVE], failed=[REQUEST.stack])[Phase.FAILED] == 1


def test_every_phase_is_told_to_prometheus_also_where_it_is_zero():
    registry = CollectorRegistry()
    registry.register(PhaseCollector(lambda: census([READY], [])))
    told = {phase: registry.get_sample_value("provisioner_services", {"phase": phase.value}) for phase in Phase}
    assert told[Phase.READY] == 1
    assert told[Phase.FAILED] == 0
    assert told[Phase.GONE] is None
