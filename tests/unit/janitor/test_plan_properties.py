"""What holds of every plan, over fleets of every mixture: what is in use stays, orphans go, a repeat adds nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.engine.recovery import Holder
from provisioner.janitor.decision import REMOVALS, Action, Verdict
from provisioner.janitor.facts import Alive, Ended, Inventory, LockFacts, Unknown
from provisioner.janitor.plan import plan
from provisioner.janitor.policy import Policy, Rules

HOUR = timedelta(hours=1)
# Longer than any wait of these policies, shorter than what is still held below.
BETWEEN_SWEEPS = timedelta(hours=3)
FAR = timedelta(days=30)


@dataclass(frozen=True)
class Service:
    """One service, described by what is true of it."""

    owner: str  # alive, ended, failed, undated, unknown, nobody, local
    lease: str  # none, held, expired
    ttl: str  # none, running, over
    record: str  # applied, half, empty, missing, deleting
    objects: str  # all, service, none
    lock: str  # none, alive, dead, unknown
    kept: str  # no, annotated, protected, retained
    cluster: str  # here, there, unknown
    backend: str  # here, there, unknown
    claims: bool
    young: bool


services = st.builds(
    Service,
    owner=st.sampled_from(["alive", "ended", "failed", "undated", "unknown", "nobody", "local"]),
    lease=st.sampled_from(["none", "none", "held", "expired"]),
    ttl=st.sampled_from(["none", "none", "running", "over"]),
    record=st.sampled_from(["applied", "applied", "half", "empty", "missing", "deleting"]),
    objects=st.sampled_from(["all", "all", "service", "none"]),
    lock=st.sampled_from(["none", "none", "none", "alive", "dead", "unknown"]),
    kept=st.sampled_from(["no", "no", "no", "annotated", "protected", "retained"]),
    cluster=st.sampled_from(["here", "here", "there", "unknown"]),
    backend=st.sampled_from(["here", "here", "there", "unknown"]),
    claims=st.booleans(),
    young=st.sampled_from([False, False, True]),
)
fleets = st.lists(services, min_size=1, max_size=12)
waits = st.sampled_from([0, 60, 600, 3600])
policies = st.builds(
    lambda grace, retention, notice, volumes: Policy(
        default=Rules(600, grace, retention, notice, volumes), max_destroys=10_000, max_share=1.0
    ),
    waits,
    waits,
    waits,
    waits,
)


def build(make: SimpleNamespace, fleet: list[Service]) -> Inventory:
    parts, executions = [], {}
    for number, service in enumerate(fleet):
        name = f"s{number}"
        by = make.owner(f"exec{number}")
        if service.owner == "nobody":
            by = make.owner("")
        elif service.owner == "local":
            by = make.owner(f"local-{number}", "local", "local")
        executions[by] = {
            "alive": Alive("runs"),
            "ended": Ended("it ended", make.NOW - HOUR),
            "failed": Ended("it failed", make.NOW - HOUR, failed=True),
            "undated": Ended("it is gone"),
        }.get(service.owner, Unknown("timeout"))
        born = make.NOW - timedelta(minutes=2) if service.young else make.LONG_AGO
        parts += _record(make, name, service, by, born)
        annotations = {
            "ttl": {"none": "", "running": "7d", "over": "1m"}[service.ttl],
            "keep": "yes" if service.kept == "annotated" else "",
            "deletion_policy": "Retain" if service.kept == "retained" else "",
            "backend": {"here": make.BACKEND, "there": "elsewhere", "unknown": ""}[service.backend],
        }
        found = make.objects(name, by=by, created=born, **annotations)
        parts.append({"all": found, "service": found[1:], "none": ()}[service.objects])
        if service.lease != "none":
            end = make.NOW + FAR if service.lease == "held" else make.NOW - HOUR
            parts.append(make.lease(name, expires=end))
        if service.claims:
            parts.append(make.claim(name, created=born))
    return make.inventory(*parts, executions=executions)


def _record(make, name, service, by, born):
    if service.record == "missing":
        return []
    holders = {"alive": Holder.ALIVE, "dead": Holder.DEAD, "unknown": Holder.UNKNOWN}
    different = {
        "locks": (LockFacts(holders[service.lock], "process 1"),) if service.lock in holders else (),
        "cluster": {"here": make.CLUSTER, "there": "cluster-there", "unknown": ""}[service.cluster],
        "protected": (name,) if service.kept == "protected" else (),
        "retain": service.kept == "retained",
        "ttl": {"none": None, "running": 7 * 86400, "over": 60}[service.ttl],
    }
    if service.record == "half":
        different |= {"applied": False}
    elif service.record == "empty":
        different |= {"identity": None, "resources": 0, "objects": 0, "uids": frozenset(), "applied": False}
    elif service.record == "deleting":
        different |= {"deleting": True}
    return [make.record(name, by=by, modified=born, **different)]


def must_stay(service: Service) -> bool:
    """Whether it is in use, or anything forbids its removal: written from the promises, not from the code."""
    recorded = service.record != "missing"
    nothing_in_it = service.record == "empty" and service.objects == "none"
    if service.young or (recorded and service.lock in ("alive", "unknown")):
        return True
    if nothing_in_it:
        return False
    if service.kept == "annotated" and service.objects != "none":
        return True
    if recorded and service.kept == "protected":
        return True
    if recorded and service.record != "empty" and service.cluster == "there":
        return True
    if not recorded and service.backend != "here":
        return True
    if service.lease == "held":
        return True
    if service.owner == "unknown":
        return True
    unfinished = service.record in ("half", "empty") and service.objects != "all"
    if service.ttl == "over" or service.record == "deleting" or unfinished:
        return False
    if service.owner == "local":
        return service.lease == "none"
    return service.owner == "alive"


def is_orphan(service: Service) -> bool:
    """Whether it is surely to go: everything about it is known, and nothing speaks for it."""
    if service.young or service.lock in ("alive", "unknown") or service.kept != "no" or service.lease == "held":
        return False
    if service.record == "missing" and service.objects == "none":
        return False
    if service.cluster != "here" or service.owner == "unknown":
        return False
    if service.record == "missing" and service.backend != "here":
        return False
    if service.record == "empty" and service.objects == "none":
        return True
    if service.ttl == "over" or service.record == "deleting":
        return True
    if service.owner in ("ended", "failed", "undated"):
        return True
    if service.owner != "nobody":
        return False
    if service.lease == "expired":
        return True
    return service.record == "missing" or service.objects == "none"


class TestEveryPlan:
    @given(fleet=fleets, policy=policies)
    @settings(max_examples=400, deadline=None)
    def test_removes_nothing_that_must_stay(self, make, fleet, policy):
        known = build(make, fleet)
        now = make.NOW
        for _ in range(3):
            found = plan(known, now, policy)
            for item in found.removals:
                service = fleet[int(item.stack[1:])]
                if item.action is not Action.DELETE_VOLUMES:
                    # What was young at first is not young for ever.
                    old = replace(service, young=service.young and now == make.NOW)
                    assert not must_stay(old), (service, item)
            known, now = make.applied(known, found, now), now + BETWEEN_SWEEPS

    @given(fleet=fleets, policy=policies)
    @settings(max_examples=400, deadline=None)
    def test_removes_every_orphan_within_two_sweeps(self, make, fleet, policy):
        known = build(make, fleet)
        first = plan(known, make.NOW, policy)
        gone = {item.stack for item in first.removals}
        second = plan(make.applied(known, first, make.NOW), make.NOW + BETWEEN_SWEEPS, policy)
        gone |= {item.stack for item in second.removals}
        orphans = {f"s{number}" for number, service in enumerate(fleet) if is_orphan(service)}
        assert orphans <= gone

    @given(fleet=fleets, policy=policies)
    @settings(max_examples=200, deadline=None)
    def test_volumes_go_only_after_their_service(self, make, fleet, policy):
        known = build(make, fleet)
        for item in plan(known, make.NOW, policy).removals:
            if item.action is Action.DELETE_VOLUMES:
                assert item.stack not in known.stacks
                assert all(entry.kind == "PersistentVolumeClaim" for entry in known.objects[item.stack])

    @given(fleet=fleets, policy=policies)
    @settings(max_examples=200, deadline=None)
    def test_is_done_when_it_was_carried_out(self, make, fleet, policy):
        known = build(make, fleet)
        first = plan(known, make.NOW, policy)
        done = {(item.stack, item.action) for item in first.decisions if item.action is not Action.NONE}
        second = plan(make.applied(known, first, make.NOW), make.NOW, policy)
        again = {(item.stack, item.action) for item in second.decisions if item.action is not Action.NONE}
        # Claims are noticed for themselves, once their service is gone.
        assert not {(stack, action) for stack, action in done & again if action is not Action.NOTIFY}
        for stack, action in done & again:
            assert (action, known.stacks.get(stack) or known.objects.get(stack)) != (Action.NOTIFY, None)
            assert any(entry.kind == "PersistentVolumeClaim" for entry in known.objects[stack])

    @given(fleet=fleets, policy=policies, data=st.data())
    @settings(max_examples=100, deadline=None)
    def test_does_not_depend_on_the_order_of_listings(self, make, fleet, policy, data):
        known = build(make, fleet)
        names = data.draw(st.permutations(sorted(known.objects)))
        shuffled = replace(
            known,
            stacks=dict(reversed(known.stacks.items())),
            objects={name: known.objects[name] for name in names},
        )
        assert plan(shuffled, make.NOW, policy) == plan(known, make.NOW, policy)

    @given(fleet=fleets, limit=st.integers(1, 5), share=st.sampled_from([0.0, 0.3, 1.0]), floor=st.integers(0, 5))
    @settings(max_examples=200, deadline=None)
    def test_keeps_its_bounds(self, make, fleet, limit, share, floor):
        policy = replace(make.UNBOUNDED, max_destroys=limit, max_share=share, brake_from=floor)
        found = plan(build(make, fleet), make.NOW, policy)
        removed = [item for item in found.removals if item.action in REMOVALS]
        assert len(removed) <= limit
        if found.brake:
            assert not removed
        wanted = len(removed) + sum(item.verdict is Verdict.POSTPONE for item in found.decisions)
        unbounded = plan(build(make, fleet), make.NOW, make.UNBOUNDED)
        assert wanted == sum(item.action in REMOVALS for item in unbounded.removals)
