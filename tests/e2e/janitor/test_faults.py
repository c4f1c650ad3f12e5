"""The janitor killed in the middle, the API server away, two janitors at once, a replica that dies while it leads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from provisioner.cluster.leases import LEASES, parse_lease
from provisioner.errors import TransientError
from provisioner.janitor.outcome import Completion, Result

AT_ONCE = {"notice": "0s", "grace": "0s"}
NO_WAIT = {"PROVISIONER_GC_NOTICE": "0s", "PROVISIONER_GC_GRACE": "0s", "PROVISIONER_GC_MIN_AGE": "0s"}


@pytest.fixture
def orphans(lab: Any, flyte: Any) -> list[Any]:
    """Three services whose owner has ended, and one that is in use."""
    flyte.start("ends")
    flyte.start("runs")
    with ThreadPoolExecutor(2) as makers:
        made = list(makers.map(lambda number: lab.up(f"orphan-{number}", "ends"), range(3)))
    lab.up("used", "runs")
    flyte.end("ends")
    return made


@pytest.fixture
def used(lab: Any) -> Callable[[], Any]:
    """What there is of the service in use."""
    return lambda: lab.uids(lab.identity("used", "runs"))


def test_killed_in_the_middle_leaves_nothing_that_the_next_one_cannot_finish(
    lab: Any, orphans: list[Any], used: Any, janitor: Any, eventually: Any
) -> None:
    before = used()
    process = subprocess.Popen(
        [sys.executable, "-m", "provisioner", "gc", "--namespace", lab.namespace, "--max-share", "100%"],
        env={**os.environ, **lab.variables, **NO_WAIT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: any(lab.locks(who) for who in orphans), "a removal is under way")
    lab.kill_with_all_it_started(process)
    assert not all(lab.gone(who) for who in orphans)

    report = janitor(hours=1, **AT_ONCE).sweep()
    assert {outcome.result for outcome in report.outcomes} == {Result.DONE}
    assert all(lab.gone(who) and not lab.locks(who) for who in orphans)
    assert used() == before


def test_nothing_is_done_while_the_api_server_is_away(
    lab: Any, orphans: list[Any], used: Any, janitor: Any, wire: Any
) -> None:
    before = used()
    through = lab.settings.model_copy(update={"kubeconfig": wire.kubeconfig})
    one = janitor(hours=1, settings=through, **AT_ONCE)
    wire.cut()
    with pytest.raises(TransientError) as raised:
        one.sweep()
    assert raised.value.reason == "Unreachable"
    assert all(lab.recorded(who) and lab.uids(who) for who in orphans)

    # It goes away after the plan was made: each removal fails, is noted, and waits before it is tried again.
    wire.mend()
    inventory, plan = one.gatherer.everything()
    assert len(plan.removals) == 3
    wire.cut()
    outcomes = one.carry_out(plan, inventory)
    assert {outcome.result for outcome in outcomes} == {Result.FAILED}
    assert all(lab.recorded(who) and lab.uids(who) for who in orphans)
    wire.mend()
    waiting = one.sweep()
    assert {decision.reason for decision in waiting.plan.decisions} == {"Backoff", "InUse"}
    assert waiting.completion is Completion.POSTPONED

    # Later it is back, and so is the order of things.
    assert janitor(hours=2, **AT_ONCE).sweep().completion is Completion.COMPLETE
    assert all(lab.gone(who) for who in orphans)
    assert used() == before


def test_a_removal_that_keeps_failing_asks_for_a_person_and_can_be_forgotten(
    lab: Any, flyte: Any, janitor: Any
) -> None:
    flyte.start("ends")
    who = lab.up("stuck", "ends")
    flyte.end("ends")
    own = {**AT_ONCE, "min_age": "0s", "stalled_after": 2, "retry_first": "10m", "retry_cap": "10m"}
    with lab.undeletable(who):
        for hours in (1, 2):
            (outcome,) = janitor(hours=hours, **own).sweep().outcomes
            assert outcome.result is Result.FAILED
        report = janitor(hours=2, **own).sweep()
        (decision,) = report.plan.decisions
        assert (decision.verdict.value, decision.reason) == ("Postpone", "Stalled")
        assert f"provisioner gc forget {who.stack}" in decision.message
        assert report.completion is Completion.FAILED
        assert report.outcomes == ()
        assert "stuck" in lab.events("GarbageCollectionFailed")
        assert janitor(**own).forget(who.stack)
        assert not lab.recorded(who)
        assert lab.uids(who)
    # What the cluster still has of it is found by its labels.
    janitor(hours=1, **own).sweep()
    assert lab.gone(who)


def test_two_at_once_remove_each_orphan_and_neither_fails(
    lab: Any, orphans: list[Any], used: Any, janitor: Any
) -> None:
    before = used()
    together = threading.Barrier(2)

    def sweep(one: Any) -> Any:
        inventory, plan = one.gatherer.everything()
        together.wait()
        return one.carry_out(plan, inventory)

    with ThreadPoolExecutor(2) as threads:
        both = [
            outcome
            for outcomes in threads.map(sweep, [janitor(hours=1, **AT_ONCE) for _ in "ab"])
            for outcome in outcomes
        ]
    assert Result.FAILED not in {outcome.result for outcome in both}
    for who in orphans:
        assert Result.DONE in {outcome.result for outcome in both if outcome.decision.stack == who.stack}
        assert lab.gone(who)
    assert used() == before
    # What gave way to the other leaves no mark.
    assert janitor(hours=2, **AT_ONCE).sweep().completion is Completion.COMPLETE


_REPLICA = """
import os, sys, threading
from provisioner.janitor.janitor import Janitor
from provisioner.janitor.settings import JanitorSettings
from provisioner.settings import Settings
Janitor(Settings(), JanitorSettings()).run_forever(3600.0, threading.Event())
"""


def test_another_replica_takes_over_from_one_that_dies_while_it_leads(
    lab: Any, flyte: Any, janitor: Any, eventually: Any
) -> None:
    variables = {
        **os.environ,
        **lab.variables,
        **NO_WAIT,
        "PROVISIONER_GC_NAMESPACES": lab.namespace,
        "PROVISIONER_GC_LEASE_NAMESPACE": lab.namespace,
        "PROVISIONER_GC_LEASE_SECONDS": "3",
        "PROVISIONER_GC_MAX_SHARE": "100%",
    }

    def holder() -> str:
        found = [parse_lease(item) for item in lab.call("list", LEASES)["items"]]
        return next((lease.holder for lease in found if lease.name == "data-service-janitor"), "")

    replicas = [
        subprocess.Popen([sys.executable, "-c", _REPLICA], env=variables, stderr=subprocess.DEVNULL) for _ in "ab"
    ]
    try:
        first = eventually(holder, "one is elected")
        (leader,) = [item for item in replicas if f"_{item.pid}_" in first]
        (other,) = [item for item in replicas if item is not leader]
        flyte.start("ends")
        who = lab.up("orphan", "ends")
        flyte.end("ends")
        leader.kill()
        eventually(lambda: f"_{other.pid}_" in holder(), "the other one takes over")
        # Each sweeps as soon as it is elected, and this orphan came after the first one's sweep.
        eventually(lambda: lab.gone(who), "it sweeps")
    finally:
        for item in replicas:
            item.kill()
            item.wait()


def test_a_replica_that_is_told_to_stop_gives_its_lease_back(lab: Any, janitor: Any, eventually: Any) -> None:
    stop = threading.Event()
    one = janitor(lease_namespace=lab.namespace, lease_seconds=600)
    running = threading.Thread(target=one.run_forever, args=(3600.0, stop))
    running.start()
    eventually(lambda: lab.call("list", LEASES)["items"], "it is elected")
    stop.set()
    running.join(60)
    assert not running.is_alive()
    (lease,) = [parse_lease(item) for item in lab.call("list", LEASES)["items"]]
    assert lease.holder == ""
