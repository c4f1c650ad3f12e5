"""Builders of what the janitor knows: each makes one service that nobody would remove, and takes what is different."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.cluster.leases import Lease
from provisioner.identity import (
    ANNOTATION_BACKEND,
    ANNOTATION_NOTICE,
    ANNOTATION_OWNER,
    LABEL_DOMAIN,
    LABEL_OWNER,
    LABEL_PROJECT,
    Identity,
)
from provisioner.janitor.assess import notice_text
from provisioner.janitor.decision import Action, Plan, Verdict
from provisioner.janitor.facts import (
    Alive,
    CheckpointFacts,
    Inventory,
    LockFacts,
    ObjectFacts,
    Owner,
    StackFacts,
)
from provisioner.janitor.policy import Policy, Rules
from provisioner.janitor.subject import CLAIM, STATEFUL_SET

NOW = datetime(2026, 5, 9, 12, 0, tzinfo=UTC)
CLUSTER, BACKEND = "cluster-here", "backend-here"
LONG_AGO = NOW - timedelta(days=2)


def owner(execution: str = "exec", project: str = "p", domain: str = "d") -> Owner:
    return Owner(project, domain, execution)


def record(name: str, *, by: Owner | None = None, modified: datetime | None = LONG_AGO, **different: Any) -> StackFacts:
    """A stack that was applied in full in this cluster, its checkpoint read."""
    locks: tuple[LockFacts, ...] = different.pop("locks", ())
    by = by or owner()
    identity = Identity(by.project, by.domain, "ns", name, name, by.execution)
    facts = CheckpointFacts(
        identity=identity,
        start_deadline=1800,
        cluster=CLUSTER,
        applied=True,
        resources=3,
        objects=2,
        uids=frozenset({f"{name}-sts", f"{name}-svc"}),
    )
    return StackFacts(name, modified, locks, replace(facts, **different))


def objects(
    name: str, *, by: Owner | None = None, created: datetime = LONG_AGO, ready: int = 1, **annotations: str
) -> tuple[ObjectFacts, ...]:
    """The StatefulSet and the Service of a service; annotations by the last part of their name."""
    by = by or owner()
    own = {ANNOTATION_OWNER: str(by), ANNOTATION_BACKEND: BACKEND}
    own |= {f"data-service-provisioner/{key.replace('_', '-')}": value for key, value in annotations.items()}
    own = {key: value for key, value in own.items() if value}
    return (
        ObjectFacts(STATEFUL_SET, "ns", name, f"{name}-sts", name, own, {}, created, replicas=1, ready=ready),
        ObjectFacts("Service", "ns", name, f"{name}-svc", name, own, {}, created),
    )


def claim(name: str, *, created: datetime = LONG_AGO, **annotations: str) -> ObjectFacts:
    own = {f"data-service-provisioner/{key}": value for key, value in annotations.items()}
    labels = {LABEL_PROJECT: "p", LABEL_DOMAIN: "d", LABEL_OWNER: "exec"}
    return ObjectFacts(CLAIM, "ns", f"data-{name}-0", f"{name}-pvc", name, own, labels, created)


def lease(name: str, *, expires: datetime, holder: str = "p:d:user") -> Lease:
    return Lease("ns", f"{name}-{holder}", "uid", "1", name, holder, 60, expires - timedelta(seconds=60), LONG_AGO)


def inventory(*parts: StackFacts | ObjectFacts | Lease | tuple[ObjectFacts, ...], **different: Any) -> Inventory:
    """What was listed, from its parts; every owner lives unless it is said otherwise."""
    stacks, found, leases = {}, {}, {}
    for part in parts:
        if isinstance(part, StackFacts):
            stacks[part.name] = part
        elif isinstance(part, Lease):
            leases[part.stack] = (*leases.get(part.stack, ()), part)
        else:
            for item in part if isinstance(part, tuple) else (part,):
                found[item.stack] = (*found.get(item.stack, ()), item)
    made = Inventory(CLUSTER, BACKEND, stacks=stacks, objects=found, leases=leases, executions={owner(): Alive("runs")})
    return replace(made, **different)


def applied(known: Inventory, plan: Plan, now: datetime) -> Inventory:
    """The world after a plan was carried out without a fault."""
    stacks, found, leases = dict(known.stacks), dict(known.objects), dict(known.leases)
    cases, remains, surplus = dict(known.cases), dict(known.remains), set(known.surplus)
    for item in plan.decisions:
        name, here = item.stack, found.get(item.stack, ())
        if item.action is Action.NOTIFY:
            assert item.case is not None
            assert item.due is not None
            cases[name] = item.case
            found[name] = tuple(_annotated(entry, notice_text(item.due, item.reason)) for entry in here)
        elif item.action is Action.WITHDRAW:
            cases.pop(name, None)
            found[name] = tuple(_annotated(entry, None) for entry in here)
        elif item.action in (Action.DESTROY, Action.DELETE_OBJECTS, Action.REMOVE_RECORD):
            stacks.pop(name, None)
            cases.pop(name, None)
            found[name] = tuple(entry for entry in here if entry.kind == CLAIM)
            leases[name] = tuple(entry for entry in leases.get(name, ()) if entry.held(now))
        elif item.action is Action.DELETE_VOLUMES:
            cases.pop(name, None)
            found[name] = tuple(entry for entry in here if entry.kind != CLAIM)
        elif item.action is Action.DELETE_LEASES:
            leases[name] = tuple(entry for entry in leases.get(name, ()) if entry.held(now))
        elif item.action is Action.UNLOCK:
            stacks[name] = replace(stacks[name], locks=())
        elif item.action is Action.PRUNE:
            remains.pop(name, None)
            surplus.discard(name)
    return replace(
        known,
        stacks=stacks,
        objects={name: items for name, items in found.items() if items},
        leases={name: items for name, items in leases.items() if items},
        cases=cases,
        remains=remains,
        surplus=frozenset(surplus),
    )


def _annotated(item: ObjectFacts, text: str | None) -> ObjectFacts:
    annotations = {key: value for key, value in item.annotations.items() if key != ANNOTATION_NOTICE}
    return replace(item, annotations=annotations | ({ANNOTATION_NOTICE: text} if text else {}))


def main_decision(plan: Plan, stack: str) -> Any:
    """The decision about a service itself."""
    found = [item for item in plan.decisions if item.stack == stack and item.verdict is not Verdict.TIDY]
    assert len(found) == 1, plan.decisions
    return found[0]


# Nothing waits, so that a test sees at once what would happen in the end.
AT_ONCE = Rules(min_age=600, grace=0, failure_retention=0, notice=0, volume_retention=0)
UNBOUNDED = Policy(default=AT_ONCE, max_destroys=10_000, max_share=1.0)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The builders."""
    return SimpleNamespace(
        NOW=NOW,
        CLUSTER=CLUSTER,
        BACKEND=BACKEND,
        LONG_AGO=LONG_AGO,
        AT_ONCE=AT_ONCE,
        UNBOUNDED=UNBOUNDED,
        owner=owner,
        record=record,
        objects=objects,
        claim=claim,
        lease=lease,
        inventory=inventory,
        applied=applied,
        main=main_decision,
    )
