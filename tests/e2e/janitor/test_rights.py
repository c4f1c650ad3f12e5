"""Everything that a sweep does, under exactly the rights that docs/janitor.md grants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import PODS, SERVICES, Call, Resource
from provisioner.cluster.leases import LEASES, parse_lease
from provisioner.cluster.transport import NotFoundError
from provisioner.control.doctor import Check
from provisioner.control.doctor import Result as Outcome
from provisioner.errors import PermanentError
from provisioner.identity import LABEL_STACK
from provisioner.janitor.decision import Action
from provisioner.janitor.doctor import examine
from provisioner.janitor.leader import Elector
from provisioner.janitor.outcome import Completion, Result
from provisioner.janitor.permissions import FLYTEWORKFLOWS, SWEEP, election
from provisioner.settings import Settings

DOCUMENT = Path(__file__).parents[3] / "docs/janitor.md"
ACCOUNTS = Resource("ServiceAccount", "", "v1", "serviceaccounts")
_RBAC = ("rbac.authorization.k8s.io", "v1")
KINDS = {
    resource.kind: resource
    for resource in (
        ACCOUNTS,
        Resource("ClusterRole", *_RBAC, "clusterroles", namespaced=False),
        Resource("ClusterRoleBinding", *_RBAC, "clusterrolebindings", namespaced=False),
        Resource("Role", *_RBAC, "roles"),
        Resource("RoleBinding", *_RBAC, "rolebindings"),
        Resource("CronJob", "batch", "v1", "cronjobs"),
    )
}
JOBS = Resource("Job", "batch", "v1", "jobs")
NOWHERE = {"example.com/nowhere": "true"}
AT_ONCE = {"notice": "0s", "grace": "0s"}


def documented(lab: Any) -> list[dict[str, Any]]:
    """The documents for kubectl, in a namespace of their own."""
    blocks = re.findall(r"^```yaml\n(apiVersion:.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    text = "\n---\n".join(blocks).replace("namespace: flyte", f"namespace: {lab.namespace}")
    # Roles of the whole cluster need names of their own as well.
    for name in ("name: {}", "resourceNames: [{}]"):
        text = text.replace(name.format("data-service-janitor"), name.format(lab.namespace))
    return list(yaml.safe_load_all(text))


def create(lab: Any, document: dict[str, Any], **query: str) -> None:
    call = Call("create", KINDS[document["kind"]], lab.namespace)
    # As kubectl does it: an unknown field is an error.
    lab.client.transport.json(call, body=document, query={"fieldValidation": "Strict", **query})


@pytest.fixture
def account(lab: Any, tmp_path: Path, eventually: Any) -> Iterator[Settings]:
    """Settings of the ServiceAccount with the documented rights."""
    granted = [document for document in documented(lab) if document["kind"] != "CronJob"]
    for document in granted:
        create(lab, document)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    call = Call("create", ACCOUNTS, lab.namespace, lab.namespace, "token")
    token = lab.client.transport.json(call, body=body)["status"]["token"]
    document = yaml.safe_load(lab.settings.kubeconfig.read_text())
    document["users"] = [{"name": user["name"], "user": {"token": token}} for user in document["users"]]
    kubeconfig = tmp_path / "janitor.yaml"
    kubeconfig.write_text(yaml.safe_dump(document))
    settings = lab.settings.model_copy(update={"kubeconfig": kubeconfig})
    client, wanted = ClusterClient(settings), (SWEEP, FLYTEWORKFLOWS, election(lab.namespace))
    # The API server hears of new roles and bindings some time after it has stored them.
    eventually(lambda: not any(client.permissions(lab.namespace, each) for each in wanted), "the rights are in force")
    yield settings
    for document in granted:
        if not KINDS[document["kind"]].namespaced:
            with suppress(NotFoundError):
                lab.client.transport.json(Call("delete", KINDS[document["kind"]], name=lab.namespace))


def test_the_documents_are_what_the_api_server_takes(lab: Any) -> None:
    kinds = []
    for document in documented(lab):
        create(lab, document, dryRun="All")
        kinds.append(document["kind"])
    assert sorted(kinds) == sorted(KINDS)


def test_the_account_may_do_what_the_table_says_and_not_everything(lab: Any, account: Settings) -> None:
    client = ClusterClient(account)
    for needed in (SWEEP, FLYTEWORKFLOWS, election(lab.namespace)):
        assert client.permissions(lab.namespace, needed) == []
    assert [item.name for item in client.permissions(lab.namespace, election("another"))] == ["another"]
    with pytest.raises(PermanentError, match="create services"):
        client.transport.json(Call("create", SERVICES, lab.namespace), body={})


def test_doctor_finds_that_nothing_is_missing_and_then_what_is(
    lab: Any, flyte: Any, account: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(settings: Settings) -> dict[str, list[Check]]:
        checks: dict[str, list[Check]] = {}
        for check in examine(settings):
            checks.setdefault(check.name, []).append(check)
        return checks

    monkeypatch.setenv("PROVISIONER_GC_LEASE", lab.namespace)
    monkeypatch.setenv("PROVISIONER_GC_LEASE_NAMESPACE", lab.namespace)
    fine = found(account)
    assert {check.result for checks in fine.values() for check in checks} == {Outcome.PASS}, fine
    assert {"janitor: notes", "janitor: flyteworkflow", "permissions to sweep", "permissions for the election"} <= set(
        fine
    )

    monkeypatch.setenv("PROVISIONER_GC_LEASE", "another")
    monkeypatch.setenv("PROVISIONER_GC_CLUSTER", "another")
    monkeypatch.setenv("PROVISIONER_GC_OWNERS", "flyteadmin")
    monkeypatch.setenv("FLYTE_PLATFORM_URL", "127.0.0.1:1")
    monkeypatch.setenv("FLYTE_PLATFORM_INSECURE", "true")
    wrong = found(account)
    results = {name: [check.result for check in checks] for name, checks in wrong.items()}
    assert results["janitor: cluster"] == [Outcome.FAIL]
    assert results["janitor: flyteadmin"] == [Outcome.FAIL]
    assert results["permissions for the election"] == [Outcome.WARN]
    assert results["permissions to sweep"] == [Outcome.PASS]
    monkeypatch.setenv("PROVISIONER_GC_NOTICE", "soon")
    (only,) = examine(account)
    assert only.result is Outcome.FAIL


def test_a_sweep_of_every_kind_of_thing(lab: Any, flyte: Any, account: Settings, janitor: Any) -> None:
    for execution in ("runs", "ends"):
        flyte.start(execution)
    used = lab.put("used", "runs")
    # The one with all kinds of objects.
    full = lab.up(
        "full",
        "ends",
        replicas=2,
        env={"TOKEN": {"secret": "hunter2"}},
        disruptionBudget={"maxUnavailable": 1},
        volumes=[{"name": "data", "mountPath": "/data", "claim": {"size": "1Mi"}}],
        volumeRetention={"whenDeleted": "Retain"},
    )
    stray = lab.put("stray", "ends")
    lab.engine.stack(stray.stack).forget()
    pod = {
        "containers": [{"name": "c", "image": "127.0.0.1:5999/a:1"}],
        "nodeSelector": {"example.com/nowhere": "true"},
    }
    lab.call("create", PODS, body={"metadata": {"name": "pod", "labels": {LABEL_STACK: stray.stack}}, "spec": pod})
    shared = lab.put("shared")
    lab.lease(shared, "team:development:user", seconds=60, renewed=datetime.now(UTC) - timedelta(hours=1))
    owned = lab.put("owned")
    lab.annotate(owned, owner_object=f"jobs.v1.batch/{lab.namespace}/none")
    flyte.end("ends")
    orphans = {who.stack for who in (full, stray, shared, owned)}
    before = lab.uids(used)

    def sweep(hours: float, **own: str) -> Any:
        # All namespaces, as the document grants it; what other tests left there is none of this backend.
        report = janitor(hours, settings=account, namespaces=(), **own).sweep()
        assert report.unlisted == ()
        mine = [item for item in report.outcomes if item.decision.stack in orphans | {used.stack}]
        found = {item.decision.stack: item for item in mine}
        assert {item.result for item in found.values()} <= {Result.DONE}, found
        assert report.completion is Completion.COMPLETE
        return {stack: item.decision.action for stack, item in found.items()}

    assert sweep(1) == dict.fromkeys(orphans, Action.NOTIFY)
    told = {"full", "stray", "shared", "owned"}
    assert all(lab.notice(who) for who in (full, stray, shared, owned))
    assert told <= set(lab.events("GarbageCollectionNotice"))
    assert set(sweep(2)) == orphans
    assert all(lab.gone(who) for who in (full, stray, shared, owned))
    assert told <= set(lab.events("GarbageCollecting"))
    assert not lab.has_lease(shared, "team:development:user")
    assert len(lab.claims(full)) == 2
    assert sweep(3, volume_retention="0s", **AT_ONCE) == {full.stack: Action.DELETE_VOLUMES}
    assert lab.claims(full) == []
    assert lab.uids(used) == before


def test_the_election(lab: Any, account: Settings) -> None:
    # The role names the Lease of the default settings; here it is called as all the rest.
    elector = Elector(ClusterClient(account), lab.namespace, lab.namespace, seconds=15)
    assert elector.step()
    assert elector.step()
    elector.release()
    (lease,) = [parse_lease(item) for item in lab.call("list", LEASES)["items"]]
    assert lease.holder == ""
