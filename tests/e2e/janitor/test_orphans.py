"""Every kind of orphan, really made, beside the same thing in use: two sweeps remove the one and leave the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.errors import ProvisionerError
from provisioner.identity import Identity
from provisioner.janitor.decision import Action, Verdict
from provisioner.janitor.janitor import Janitor
from provisioner.janitor.outcome import Completion, Report, Result

# A pid that no process has: the kernel's largest by default is below it.
NO_PROCESS = 4_194_305


@dataclass
class Fleet:
    used: dict[str, Identity] = field(default_factory=dict)
    orphans: dict[str, Identity] = field(default_factory=dict)


def make_fleet(lab: Any, flyte: Any) -> Fleet:
    """All of them, four at a time; some by the engine from beginning to end, the others cast from what it made."""
    for execution in ("runs", "ends", "vanishes", "half-runs", "half-ends"):
        flyte.start(execution)
    fleet = Fleet()
    used: dict[str, Callable[[str], Identity]] = {
        "used-by-execution": lambda name: lab.up(name, "runs"),
        "used-by-user": lambda name: lab.put(name),
        "used-by-nobody": lambda name: lab.put(name),
        "kept": lambda name: lab.put(name, "ends"),
        "retained": lambda name: lab.put(name, "ends", deletionPolicy="Retain"),
        "lives-on": lambda name: lab.put(name, ttl="10d"),
    }
    orphans: dict[str, Callable[[str], Identity]] = {
        "owner-ended": lambda name: lab.up(name, "ends"),
        "owner-vanished": lambda name: lab.put(name, "vanishes"),
        "lease-expired": lambda name: lab.put(name),
        "ttl-over": lambda name: lab.put(name, ttl="30m"),
        "record-gone": lambda name: lab.put(name),
        "objects-gone": lambda name: lab.put(name),
        "empty": lambda name: lab.interrupted("init", name),
        "half-made": lambda name: lab.interrupted("create", name, "half-runs", startDeadline="20m"),
        "half-made-ended": lambda name: lab.interrupted("create", name, "half-ends"),
        "half-gone": lambda name: lab.put(name, "runs"),
        "killed-while-going": lambda name: lab.put(name),
    }
    with ThreadPoolExecutor(4) as makers:
        being_made = {name: makers.submit(make, name) for name, make in (used | orphans).items()}
        made = {name: future.result() for name, future in being_made.items()}
    fleet.used = {name: made[name] for name in used}
    fleet.orphans = {name: made[name] for name in orphans}
    flyte.start("other")
    lab.lease(fleet.used["used-by-user"], "team:development:other", seconds=86400)
    lab.annotate(fleet.used["kept"], keep="somebody looks at it")
    lab.lock(fleet.used["used-by-nobody"], pid=NO_PROCESS)
    lab.lease(fleet.orphans["lease-expired"], "team:development:other", seconds=60)
    flyte.end("ends")
    flyte.end("half-ends")
    flyte.forget("vanishes")
    lab.engine.stack(fleet.orphans["record-gone"].stack).forget()
    lab.delete_objects(fleet.orphans["objects-gone"])
    with lab.undeletable(fleet.orphans["half-gone"]), pytest.raises(ProvisionerError):
        lab.engine.stack(fleet.orphans["half-gone"].stack).destroy()
    lab.interrupted("destroy", "killed-while-going")
    remains = lab.backend / ".pulumi/stacks/data-service/long-gone.json.bak"
    remains.write_text("{}")
    old = (datetime.now(UTC) - timedelta(days=2)).timestamp()
    os.utime(remains, (old, old))
    return fleet


def verdicts(report: Report) -> dict[str, tuple[str, str]]:
    return {
        decision.stack: (decision.verdict.value, decision.reason)
        for decision in report.plan.decisions
        if decision.verdict is not Verdict.TIDY
    }


def test_two_sweeps_remove_every_orphan_and_nothing_else(lab: Any, flyte: Any, janitor: Callable[..., Janitor]) -> None:
    fleet = make_fleet(lab, flyte)
    before = {name: lab.uids(who) for name, who in fleet.used.items()}
    assert all(before.values())

    # A look that changes nothing.
    plan = janitor(hours=1).sweep(dry_run=True)
    assert plan.outcomes == ()
    found = verdicts(plan)
    reasons = {name: found[who.stack] for name, who in (fleet.used | fleet.orphans).items()}
    # How far it came is a matter of luck.
    reasons.pop("killed-while-going")
    assert reasons == {
        "used-by-execution": ("Keep", "InUse"),
        "used-by-user": ("Keep", "InUse"),
        "used-by-nobody": ("Keep", "NoOwner"),
        "kept": ("Keep", "KeepAnnotation"),
        "retained": ("Keep", "Retained"),
        "lives-on": ("Keep", "NoOwner"),
        "owner-ended": ("Notice", "OwnerEnded"),
        "owner-vanished": ("Notice", "OwnerEnded"),
        "lease-expired": ("Notice", "LeaseExpired"),
        "ttl-over": ("Notice", "TtlExpired"),
        "record-gone": ("Notice", "RecordGone"),
        "objects-gone": ("Notice", "ObjectsGone"),
        "empty": ("Remove", "EmptyRecord"),
        "half-made": ("Notice", "StartDeadlineExpired"),
        "half-made-ended": ("Notice", "OwnerEnded"),
        "half-gone": ("Notice", "FailedDestroy"),
    }
    assert lab.notice(fleet.orphans["owner-ended"]) == ""
    assert lab.recorded(fleet.orphans["empty"])

    # The first sweep gives notice.
    first = janitor(hours=1).sweep()
    assert first.completion is Completion.COMPLETE
    assert {outcome.result for outcome in first.outcomes} == {Result.DONE}
    assert lab.notice(fleet.orphans["owner-ended"]).endswith(" OwnerEnded")
    assert lab.notice(fleet.orphans["record-gone"]).endswith(" RecordGone")
    assert "owner-ended" in lab.events("GarbageCollectionNotice")
    assert not lab.recorded(fleet.orphans["empty"])
    assert lab.locks(fleet.used["used-by-nobody"]) == 0
    assert not (lab.backend / ".pulumi/stacks/data-service/long-gone.json.bak").exists()
    left = [name for name, who in fleet.orphans.items() if not lab.gone(who)]
    assert set(left) - {"killed-while-going"} == set(fleet.orphans) - {"killed-while-going", "empty"}

    # The second one removes.
    second = janitor(hours=2).sweep()
    failures = {outcome.decision.stack: outcome.message for outcome in second.outcomes if outcome.message}
    assert failures == {}
    assert second.completion is Completion.COMPLETE
    assert [name for name, who in fleet.orphans.items() if not lab.gone(who)] == []
    assert not lab.has_lease(fleet.orphans["lease-expired"], "team:development:other")
    assert "owner-ended" in lab.events("GarbageCollecting")

    # What is in use was not touched, and a third sweep finds nothing to do.
    assert {name: lab.uids(who) for name, who in fleet.used.items()} == before
    assert all(lab.recorded(who) and not lab.notice(who) for who in fleet.used.values())
    assert lab.has_lease(fleet.used["used-by-user"], "team:development:other")
    third = janitor(hours=3).sweep()
    assert third.completion is Completion.COMPLETE
    assert third.outcomes == ()
    assert {stack for stack, _ in verdicts(third).items()} == {who.stack for who in fleet.used.values()}


def test_a_sweep_reads_no_checkpoint_of_a_service_in_use(lab: Any, flyte: Any, janitor: Callable[..., Janitor]) -> None:
    flyte.start("runs")
    for name in ("a", "b"):
        lab.put(name, "runs")
    report = janitor(hours=1).sweep(dry_run=True)
    assert report.checkpoints_read == 0
    assert len(verdicts(report)) == 2


def test_claims_outlive_their_service_for_their_retention_and_no_longer(
    lab: Any, flyte: Any, janitor: Callable[..., Janitor]
) -> None:
    flyte.start("ends")
    volumes = [{"name": "data", "mountPath": "/data", "claim": {"size": "1Mi"}}]
    keeps = lab.put("keeps", "ends", volumes=volumes, volumeRetention={"whenDeleted": "Retain"})
    drops = lab.put("drops", "ends", volumes=volumes)
    flyte.end("ends")
    own = {"volume_retention": "1d", "notice": "0s", "grace": "0s"}
    assert janitor(hours=1, **own).sweep().completion is Completion.COMPLETE
    assert lab.gone(keeps)
    assert lab.gone(drops)
    assert lab.claims(keeps) == ["data-keeps-0"]
    assert lab.claims(drops) == []

    assert verdicts(janitor(hours=2, **own).sweep()) == {keeps.stack: ("Notice", "VolumeRetentionExpired")}
    assert verdicts(janitor(hours=25, **own).sweep()) == {keeps.stack: ("Notice", "VolumeRetentionExpired")}
    assert lab.claims(keeps) == ["data-keeps-0"]
    assert janitor(hours=27, **own).sweep().completion is Completion.COMPLETE
    assert lab.claims(keeps) == []
    assert janitor(hours=28, **own).sweep().plan.decisions == ()


def test_never_ready_goes_and_once_ready_stays(
    lab: Any, janitor: Callable[..., Janitor], eventually: Callable[..., Any]
) -> None:
    never = lab.put("never", startDeadline="20m")
    # Ready for some seconds and until that was seen, and then not any more.
    once = lab.put(
        "once",
        startDeadline="20m",
        image="localhost/busybox:sandbox",
        nodeSelector={},
        command=["sh", "-c", "sleep 7; until test -f /tmp/seen; do sleep 0.1; done; touch /tmp/broken; sleep 1000"],
        readinessProbe={"exec": {"command": ["sh", "-c", "! test -f /tmp/broken"]}, "periodSeconds": 1},
    )
    eventually(lambda: lab.ready(once) == 1, "it is ready")
    lab.execute(f"{once.service}-0", "touch /tmp/seen")
    eventually(lambda: lab.ready(once) == 0, "it is not ready any more")
    found = verdicts(janitor(hours=1).sweep(dry_run=True))
    assert found == {never.stack: ("Notice", "StartDeadlineExpired"), once.stack: ("Keep", "NoOwner")}


def test_notice_is_taken_back_when_the_owner_turns_out_to_live(
    lab: Any, flyte: Any, janitor: Callable[..., Janitor]
) -> None:
    who = lab.put("back", "comes-back")
    assert janitor(hours=1).sweep().completion is Completion.COMPLETE
    assert lab.notice(who)
    flyte.start("comes-back")
    report = janitor(hours=2).sweep()
    assert [outcome.decision.action for outcome in report.outcomes] == [Action.WITHDRAW]
    assert lab.notice(who) == ""
    assert "back" in lab.events("GarbageCollectionWithdrawn")
    flyte.forget("comes-back")
    # The notice begins anew.
    assert janitor(hours=3).sweep().plan.decisions[0].verdict is Verdict.NOTICE
