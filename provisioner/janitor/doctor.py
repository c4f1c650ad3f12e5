"""Whether the janitor has all that it needs: its settings, its rights, its owner services, a place for its notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

from provisioner.cluster import ClusterClient, Permission
from provisioner.control.doctor import Check, Result, failed, permission_checks
from provisioner.errors import ProvisionerError
from provisioner.janitor.facts import Case, Owner, Unknown
from provisioner.janitor.memory import Memory
from provisioner.janitor.owners_flyteadmin import FlyteAdmin
from provisioner.janitor.owners_flyteworkflow import FlyteWorkflows
from provisioner.janitor.permissions import FLYTEWORKFLOWS, SWEEP, election
from provisioner.janitor.policy import Policy, Source
from provisioner.janitor.settings import JanitorSettings, load
from provisioner.settings import Settings

# No stack is called so: a stack's name has no dot.
_PROBE = "provisioner.doctor"


def examine(settings: Settings) -> Iterator[Check]:
    """Look at everything; each finding comes as soon as it is known.

    Args:
        settings: Backend and cluster.
    """
    name = "janitor: settings"
    try:
        own = load()
        policy = own.policy()
        memory = Memory.beside(settings.backend, own.records)
    except ProvisionerError as error:
        yield failed(name, error)
        return
    yield Check(name, Result.PASS, f"asks {', '.join(own.owners)}; {len(policy.overrides)} rules")
    yield _notes(memory)
    try:
        client = ClusterClient(settings)
        yield _cluster(client, policy)
        yield from _permissions(client, settings, own, policy)
        yield from _owners(client, policy)
    except ProvisionerError as error:
        yield failed("janitor: cluster", error)


def _notes(memory: Memory) -> Check:
    name = "janitor: notes"
    try:
        memory.remember(Case(_PROBE, "Probe", datetime.now(UTC)))
        memory.forget(_PROBE)
    except ProvisionerError as error:
        return failed(name, error)
    return Check(name, Result.PASS, f"can be written to {memory.place}")


def _cluster(client: ClusterClient, policy: Policy) -> Check:
    name, uid = "janitor: cluster", client.cluster_id()
    if policy.cluster and policy.cluster != uid:
        detail = f"this cluster is {uid}, and PROVISIONER_GC_CLUSTER is {policy.cluster}"
        return Check(name, Result.FAIL, detail, "choose the context of that cluster in PROVISIONER_CONTEXT")
    return Check(name, Result.PASS, uid if policy.cluster else f"{uid}; PROVISIONER_GC_CLUSTER can pin it")


def _permissions(client: ClusterClient, settings: Settings, own: JanitorSettings, policy: Policy) -> Iterator[Check]:
    if own.namespaces:
        for namespace in own.namespaces:
            yield from permission_checks(f"to sweep {namespace}", namespace, client.permissions(namespace, SWEEP))
    else:
        yield from permission_checks("to sweep", "", client.permissions("", _everywhere(SWEEP)))
    if Source.FLYTEWORKFLOW in policy.sources:
        yield from permission_checks("on flyteworkflows", "", client.permissions("", _everywhere(FLYTEWORKFLOWS)))
    where = own.lease_namespace or settings.namespace
    # Who sweeps by a CronJob takes part in no election.
    refused = client.permissions(where, election(own.lease))
    for check in permission_checks("for the election", where, [replace(item, optional=True) for item in refused]):
        lost = check.detail.replace("only detail is lost", f"`serve --gc-interval` needs it in {where}")
        yield replace(check, detail=lost)


def _everywhere(permissions: Sequence[Permission]) -> list[Permission]:
    return [replace(permission, cluster_wide=True) for permission in permissions]


def _owners(client: ClusterClient, policy: Policy) -> Iterator[Check]:
    probe = Owner("none", "none", "none")
    if Source.FLYTEWORKFLOW in policy.sources:
        answer = FlyteWorkflows(client).ask([probe])[probe]
        yield _owner_check("flyteworkflow", answer.why if isinstance(answer, Unknown) else "")
    if Source.FLYTEADMIN in policy.sources:
        with ThreadPoolExecutor(1) as readers:
            yield _owner_check("flyteadmin", FlyteAdmin(readers).silence())


def _owner_check(source: str, silence: str) -> Check:
    name = f"janitor: {source}"
    if not silence:
        return Check(name, Result.PASS, "answers")
    fix = f"make it reachable, or leave {source} out of PROVISIONER_GC_OWNERS: until then every execution is kept"
    return Check(name, Result.FAIL, silence, fix)
