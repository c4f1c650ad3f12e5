"""The janitor killed in the middle, the API server away, two janitors at once, a replica that dies while it leads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from provisioner.cli.output import Exit
from provisioner.cluster.leases import LEASES, parse_lease
from provisioner.errors import TransientError
from provisioner.janitor.outcome import Completion, Result

PATIENCE = 120.0
AT_ONCE = {"notice": "0s", "grace": "0s"}
NO_WAIT = {"PROVISIONER_GC_NOTICE": "0s", "PROVISIONER_GC_GRACE": "0s", "PROVISIONER_GC_MIN_AGE": "0s"}


@pytest.fixture
def orphans(lab: Any, flyte: Any) -> list[Any]:
    """Two services whose owner has ended, and one that is in use."""
    flyte.start("ends")
    flyte.start("runs")
    made = [lab.put(f"orphan-{number}", "ends") for number in range(2)]
    lab.put("used", "runs")
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
    with lab.held(*orphans):
        process = subprocess.Popen(
            [sys.executable, "-m", "provisioner", "gc", "--namespace", lab.namespace],
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
    assert len(plan.removals) == 2
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
    who = lab.put("stuck", "ends")
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


class Replica:
    """`provisioner serve` with a janitor, as one of several replicas."""

    def __init__(self, lab: Any, folder: Path, name: str) -> None:
        self._ready, self._log = folder / f"{name}.json", folder / f"{name}.log"
        words = ["--host", "127.0.0.1", "--port", "0", "--metrics-port", "0", "--ready-file", str(self._ready)]
        variables = {
            "PROVISIONER_GC_NAMESPACES": lab.namespace,
            "PROVISIONER_GC_LEASE_NAMESPACE": lab.namespace,
            # A leader that stands still for a moment must stay the leader.
            "PROVISIONER_GC_LEASE_SECONDS": "20",
            "PROVISIONER_LOG_FORMAT": "json",
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "provisioner", "serve", "--gc-interval", "3600", *words],
                env={**os.environ, **lab.variables, **NO_WAIT, **variables},
                stdout=log,
                stderr=log,
            )

    def leads(self, holder: str) -> bool:
        return f"_{self.process.pid}_" in holder

    def metric(self, name: str) -> float | None:
        """A metric; None while it serves none."""
        assert self.process.poll() is None, self._log.read_text()
        if not self._ready.exists():
            return None
        port = json.loads(self._ready.read_text())["metrics_port"]
        lines = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).text.splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), None)


@pytest.fixture
def replicas(lab: Any, tmp_path: Path) -> Iterator[list[Replica]]:
    made = [Replica(lab, tmp_path, name) for name in ("a", "b")]
    yield made
    for item in made:
        item.process.kill()
        item.process.wait()


SWEEPS = 'provisioner_gc_sweeps_total{result="complete"}'


def test_one_of_two_servers_is_the_janitor_and_the_other_takes_over_when_it_dies(
    lab: Any, flyte: Any, replicas: list[Replica], eventually: Any
) -> None:
    def holder() -> str:
        found = [parse_lease(item) for item in lab.call("list", LEASES)["items"]]
        return next((lease.holder for lease in found if lease.name == "data-service-janitor"), "")

    eventually(lambda: all(item.metric("provisioner_gc_leader") is not None for item in replicas), "both serve")
    (leader,) = eventually(lambda: [item for item in replicas if item.leads(holder())], "one is elected")
    (other,) = [item for item in replicas if item is not leader]
    eventually(lambda: leader.metric(SWEEPS) == 1, "it sweeps")
    assert leader.metric("provisioner_gc_leader") == 1
    assert other.metric("provisioner_gc_leader") == 0
    assert other.metric(SWEEPS) is None

    flyte.start("ends")
    who = lab.put("orphan", "ends")
    flyte.end("ends")
    leader.process.kill()
    eventually(lambda: other.leads(holder()), "the other one takes over")
    # Each sweeps as soon as it is elected, and this orphan came after the first one's sweep.
    eventually(lambda: lab.gone(who), "it sweeps")
    eventually(lambda: other.metric(SWEEPS) == 1, "its sweep is complete")
    assert other.metric("provisioner_gc_leader") == 1

    # Whoever ends in good order makes nobody wait.
    other.process.terminate()
    assert other.process.wait(PATIENCE) == 0
    assert holder() == ""


def test_told_to_end_it_ends_in_good_order_and_says_what_is_left(
    lab: Any, orphans: list[Any], used: Any, janitor: Any, eventually: Any
) -> None:
    before = used()
    with lab.held(*orphans):
        process = subprocess.Popen(
            [sys.executable, "-m", "provisioner", "gc", "-n", lab.namespace, "--parallel", "1", "-o", "json"],
            env={**os.environ, **lab.variables, **NO_WAIT},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: any(lab.locks(who) for who in orphans), "a removal is under way")
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == Exit.NOT_READY
    results = [item["result"] for item in json.loads(out)["decisions"] if item["verdict"] == "Remove"]
    assert "stopped" in results
    assert not any(lab.locks(who) for who in orphans)
    assert janitor(hours=1, **AT_ONCE).sweep().completion is Completion.COMPLETE
    assert all(lab.gone(who) for who in orphans)
    assert used() == before
