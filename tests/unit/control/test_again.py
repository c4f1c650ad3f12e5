"""What was applied is applied once more when its objects are gone, or when its rollout cannot go on; and only then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from provisioner.cluster.objects import Pod, Snapshot, StatefulSet
from provisioner.control.again import WATCH_LAG_SECONDS, again
from provisioner.control.failures import REMEMBERED_SECONDS, Failures
from provisioner.control.queue import Intent, Kind, View
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.errors import TransientError
from provisioner.identity import for_name
from provisioner.spec import parse_spec

NOW = 1_000_000.0
REQUEST = ServiceRequest(
    for_name("p", "d", namespace="n", name="graph"),
    parse_spec({"image": "a", "ports": [{"name": "main", "port": 9000}]}),
    NOW,
)
APPLIED = View(Intent(Kind.APPLY, REQUEST), None, True, None, "", 0, False, (), NOW)
LATER = NOW + WATCH_LAG_SECONDS + 1
PLACE = {"namespace": "n", "stack": REQUEST.stack, "created": datetime.fromtimestamp(NOW, UTC)}
# A rollout to revision "new" that waits for a pod of revision "old" which will never be ready.
ROLLING = StatefulSet(
    name="graph",
    digest=REQUEST.spec.digest(),
    generation=2,
    observed_generation=2,
    replicas=1,
    current_revision="old",
    update_revision="new",
    **PLACE,
)
WAITING = Pod(name="graph-0", uid="u1", revision="old", **PLACE)
STUCK = Snapshot(statefulset=ROLLING, pods=(WAITING,))


def test_objects_that_are_gone_are_made_again():
    assert again(APPLIED, Snapshot(), LATER) == Intent(Kind.APPLY, REQUEST, repair=True)


@pytest.mark.parametrize(
    ("view", "snapshot", "now"),
    [
        pytest.param(APPLIED, Snapshot(), NOW + WATCH_LAG_SECONDS - 1, id="the watch may be late"),
        pytest.param(APPLIED, Snapshot(fresh=False), LATER, id="nobody knows what there is"),
        pytest.param(replace(APPLIED, settled=False), Snapshot(), LATER, id="it is being applied"),
        pytest.param(replace(APPLIED, error=TransientError("no")), Snapshot(), LATER, id="it failed"),
        pytest.param(replace(APPLIED, intent=Intent(Kind.REMOVE, REQUEST)), Snapshot(), LATER, id="it was removed"),
        pytest.param(APPLIED, Snapshot(statefulset=ROLLING), LATER, id="its objects are there"),
    ],
)
def test_nothing_is_done(view: View, snapshot: Snapshot, now: float):
    assert again(view, snapshot, now) is None


def test_a_pod_that_holds_up_the_rollout_is_told_once():
    intent = again(APPLIED, STUCK, NOW)
    assert intent == Intent(Kind.APPLY, REQUEST, stuck=(WAITING,))
    assert again(replace(APPLIED, intent=intent), STUCK, NOW) is None
    another = replace(WAITING, uid="u2")
    found = again(replace(APPLIED, intent=intent), replace(STUCK, pods=(another,)), NOW)
    assert found is not None
    assert found.stuck == (another,)


def test_a_pod_is_left_alone_while_another_specification_is_rolled_out():
    other = replace(STUCK, statefulset=replace(ROLLING, digest="another"))
    assert again(APPLIED, other, NOW) is None


FAILED = Status(REQUEST.stack, Phase.FAILED, reason="CrashLoop")
CHANGED = replace(REQUEST, spec=parse_spec({"image": "b", "ports": [{"name": "main", "port": 9000}]}))


def test_a_failure_is_that_of_what_was_wanted():
    failures = Failures()
    assert failures.of(REQUEST) is None
    failures.add(REQUEST, FAILED, NOW)
    assert failures.of(REQUEST) == FAILED
    assert failures.of(CHANGED) is None
    failures.forget_other(REQUEST)
    assert failures.stacks() == [REQUEST.stack]
    failures.forget_other(CHANGED)
    assert failures.of(REQUEST) is None


def test_a_failure_is_forgotten_when_it_is_wanted_anew_or_old():
    failures = Failures()
    failures.add(REQUEST, FAILED, NOW)
    failures.forget(REQUEST.stack)
    assert failures.stacks() == []
    failures.add(REQUEST, FAILED, NOW)
    failures.forget_old(NOW + REMEMBERED_SECONDS)
    assert failures.stacks() == [REQUEST.stack]
    failures.forget_old(NOW + REMEMBERED_SECONDS + 1)
    assert failures.stacks() == []
