"""What holds the janitor back: people, flags, running operations, another cluster, another backend, its own bounds."""

from __future__ import annotations

import os
from typing import Any

import pytest

from provisioner.cluster.api import PODS, SERVICES, STATEFULSETS
from provisioner.identity import Origin
from provisioner.janitor.decision import Action, Verdict
from provisioner.janitor.outcome import Completion, Result

AT_ONCE = {"notice": "0s", "grace": "0s"}


def only(report: Any) -> tuple[str, str]:
    """Verdict and reason of the only service."""
    (decision,) = [item for item in report.plan.decisions if item.verdict is not Verdict.TIDY]
    return decision.verdict.value, decision.reason


@pytest.fixture
def orphan(lab: Any, flyte: Any) -> Any:
    """A service whose owner has ended, while nothing protects it."""
    flyte.start("ends")
    who = lab.put("orphan", "ends")
    flyte.end("ends")
    return who


def test_each_protection_holds_and_is_reported_until_it_is_taken_away(lab: Any, orphan: Any, janitor: Any) -> None:
    def look() -> tuple[str, str]:
        return only(janitor(hours=1, **AT_ONCE).sweep())

    # Somebody's word.
    lab.annotate(orphan, keep="true")
    assert look() == ("Keep", "KeepAnnotation")
    lab.annotate(orphan, keep=None)

    # Somebody at work: this very process holds the lock.
    lock = lab.lock(orphan, pid=os.getpid())
    assert look() == ("Keep", "OperationRunning")
    lock.unlink()

    # Somebody of whom nothing can be known.
    lock = lab.lock(orphan, pid=1, host="another-machine")
    assert look() == ("Keep", "LockHolderUnknown")
    lock.unlink()

    # Pulumi's own flag.
    lab.protect(orphan, True)
    assert look() == ("Keep", "Protected")
    lab.protect(orphan, False)

    # What has just changed.
    assert only(janitor(**AT_ONCE).sweep()) == ("Keep", "Young")

    assert all(lab.uids(orphan).values())
    assert look() == ("Remove", "OwnerEnded")
    assert lab.gone(orphan)


def test_the_lock_of_a_pod_counts_for_as_long_as_the_pod_is_there(lab: Any, orphan: Any, janitor: Any) -> None:
    own = {**AT_ONCE, "lock_pods": f"{lab.namespace}/agent-"}
    body = {"metadata": {"name": "agent-a"}, "spec": {"containers": [{"name": "c", "image": "127.0.0.1:5999/a:1"}]}}
    lab.call("create", PODS, body=body)
    lab.lock(orphan, pid=1, host="agent-a")
    assert only(janitor(hours=1, **own).sweep(dry_run=True)) == ("Keep", "OperationRunning")
    # Without the setting nothing can be said about another machine.
    assert only(janitor(hours=1, **AT_ONCE).sweep(dry_run=True)) == ("Keep", "LockHolderUnknown")
    lab.call("delete", PODS, "agent-a", {"gracePeriodSeconds": 0})
    assert janitor(hours=1, **own).sweep().completion is Completion.COMPLETE
    assert lab.gone(orphan)


def test_a_switched_kubeconfig_refuses_everything(lab: Any, flyte: Any, janitor: Any) -> None:
    flyte.start("ends")
    who = lab.put("orphan", "ends", Origin("another-cluster", lab.origin.backend))
    flyte.end("ends")
    report = janitor(hours=1, **AT_ONCE).sweep()
    assert only(report) == ("Keep", "OtherCluster")
    # Its objects are gone from sight, as they are when the kubeconfig leads elsewhere.
    lab.delete_objects(who)
    report = janitor(hours=1, **AT_ONCE).sweep()
    assert report.completion is Completion.REFUSED
    assert "another-cluster" in report.plan.refused
    assert lab.recorded(who)
    assert janitor(hours=1, cluster="another-cluster", **AT_ONCE).sweep().completion is Completion.REFUSED


def test_objects_that_another_backend_records_are_not_strays(lab: Any, flyte: Any, janitor: Any) -> None:
    flyte.start("ends")
    who = lab.put("theirs", "ends", Origin(lab.origin.cluster, "another-backend"))
    lab.engine.stack(who.stack).forget()
    flyte.end("ends")
    before = lab.uids(who)
    assert only(janitor(hours=1, **AT_ONCE).sweep()) == ("Keep", "OtherBackend")
    assert lab.uids(who) == before


def test_somebody_elses_object_that_took_the_name_is_left_alone(lab: Any, orphan: Any, janitor: Any) -> None:
    lab.call("delete", STATEFULSETS, orphan.service)
    labels = {"app": "theirs"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "127.0.0.1:5999/a:1"}]}}
    spec = {"replicas": 0, "serviceName": "theirs", "selector": {"matchLabels": labels}, "template": template}
    theirs = lab.call("create", STATEFULSETS, body={"metadata": {"name": orphan.service}, "spec": spec})
    report = janitor(hours=1, **AT_ONCE).sweep()
    assert report.completion is Completion.COMPLETE
    assert lab.gone(orphan)
    left = lab.call("get", STATEFULSETS, orphan.service)
    assert left["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


def test_too_many_at_once_stop_the_sweep_or_wait_their_turn(lab: Any, flyte: Any, janitor: Any) -> None:
    flyte.start("ends")
    orphans = [lab.put(f"orphan-{number}", "ends") for number in range(3)]
    flyte.end("ends")
    stopped = janitor(hours=1, max_share=0.5, brake_from=0, **AT_ONCE).sweep()
    assert stopped.completion is Completion.POSTPONED
    assert stopped.plan.brake
    assert all(lab.recorded(who) for who in orphans)
    some = janitor(hours=1, max_destroys=2, **AT_ONCE).sweep()
    assert some.completion is Completion.POSTPONED
    assert sum(lab.gone(who) for who in orphans) == 2
    assert janitor(hours=1, max_destroys=2, **AT_ONCE).sweep().completion is Completion.COMPLETE
    assert all(lab.gone(who) for who in orphans)


def test_a_reason_that_vanished_since_the_listing_stops_the_removal(
    lab: Any, orphan: Any, flyte: Any, janitor: Any
) -> None:
    one = janitor(hours=1, **AT_ONCE)
    inventory, plan = one.gatherer.everything()
    assert [item.action for item in plan.removals] == [Action.DESTROY]
    flyte.forget("ends")
    flyte.start("ends")
    (outcome,) = one.carry_out(plan, inventory)
    assert outcome.result is Result.CHANGED
    assert "InUse" in outcome.message
    assert lab.recorded(orphan)


def test_what_somebody_removed_since_the_listing_is_well(lab: Any, orphan: Any, janitor: Any) -> None:
    one = janitor(hours=1, **AT_ONCE)
    inventory, plan = one.gatherer.everything()
    assert [item.action for item in plan.removals] == [Action.DESTROY], plan.decisions
    lab.engine.stack(orphan.stack).destroy()
    (outcome,) = one.carry_out(plan, inventory)
    assert outcome.result is Result.GONE


def test_what_was_deleted_is_not_called_gone_before_it_is(lab: Any, orphan: Any, janitor: Any) -> None:
    lab.engine.stack(orphan.stack).forget()
    lab.call("patch", SERVICES, orphan.service, {"metadata": {"finalizers": ["example.com/hold"]}})
    first = janitor(hours=1, verify_timeout="1s", **AT_ONCE).sweep()
    assert first.completion is Completion.POSTPONED
    (outcome,) = first.outcomes
    assert outcome.result is Result.UNDONE
    assert f"Service {lab.namespace}/orphan" in outcome.message
    assert only(janitor(**AT_ONCE).sweep()) == ("Keep", "Terminating")
    stuck = janitor(hours=2, **AT_ONCE).sweep()
    assert only(stuck) == ("Keep", "TerminationStuck")
    assert stuck.completion is Completion.POSTPONED
    lab.call("patch", SERVICES, orphan.service, {"metadata": {"finalizers": None}})
    assert janitor(hours=2, **AT_ONCE).sweep().completion is Completion.COMPLETE
    assert lab.gone(orphan)


def test_an_owner_service_that_is_away_keeps_everything_and_says_so(
    lab: Any, orphan: Any, janitor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody listens at the address of this flyteadmin.
    monkeypatch.setenv("FLYTE_PLATFORM_URL", "127.0.0.1:1")
    monkeypatch.setenv("FLYTE_PLATFORM_INSECURE", "true")
    report = janitor(hours=1, owners="flyteworkflow,flyteadmin", **AT_ONCE).sweep()
    assert only(report) == ("Keep", "OwnerUnknown")
    assert report.completion is Completion.POSTPONED
    assert lab.recorded(orphan)
