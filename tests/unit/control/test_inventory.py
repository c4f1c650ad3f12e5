"""The listing: what a service's state is as far as counts tell."""

from datetime import UTC, datetime

import pytest

from provisioner.cluster.live import ListedSet
from provisioner.cluster.objects import StatefulSet
from provisioner.control.inventory import State, of_set

GONE = datetime(2026, 1, 1, tzinfo=UTC)


def listed(is_recorded: bool = True, **change: object) -> State:
    fields: dict[str, object] = {
        "generation": 2,
        "observed_generation": 2,
        "replicas": 2,
        "current_replicas": 2,
        "ready_replicas": 2,
        "updated_replicas": 2,
        "current_revision": "a",
        "update_revision": "a",
        "stack": "s",
    }
    found = StatefulSet("team", "graph", **{**fields, **change})  # type: ignore[arg-type]
    return of_set(ListedSet(found, "p", "d", ""), is_recorded).state


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, State.READY),
        ({"ready_replicas": 1}, State.NOT_READY),
        ({"updated_replicas": 1}, State.NOT_READY),
        ({"update_revision": "b"}, State.NOT_READY),
        ({"observed_generation": 1}, State.NOT_READY),
        ({"current_replicas": 3}, State.NOT_READY),
        ({"deleted": GONE}, State.REMOVING),
        ({"replicas": 0, "current_replicas": 0, "ready_replicas": 0, "updated_replicas": 0}, State.PAUSED),
        ({"replicas": 0, "current_replicas": 1}, State.NOT_READY),
        ({"is_recorded": False}, State.UNRECORDED),
    ],
)
def test_states(change: dict[str, object], state: State):
    assert listed(**change) is state
