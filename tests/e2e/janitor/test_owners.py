"""Whether an owner lives, asked of a real API server: by FlyteWorkflows and by objects of any type."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flyteadmin import FAILED, RUNNING, Admin, serving

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import Resource
from provisioner.janitor.facts import Alive, Ended, Owner, Unknown
from provisioner.janitor.outcome import Completion
from provisioner.janitor.owners_flyteworkflow import WORKFLOWS, FlyteWorkflows
from provisioner.janitor.owners_object import OwnerObjects

JOBS = Resource("Job", "batch", "v1", "jobs")
CONFIG_MAPS = Resource("ConfigMap", "", "v1", "configmaps")


def owner(execution: str, project: str = "team") -> Owner:
    return Owner(project, "development", execution)


class TestFlyteWorkflows:
    # So many at once are listed; fewer are asked for one by one.
    @pytest.mark.parametrize("more", [0, 5])
    def test_say_whether_and_how_an_execution_ended(self, lab: Any, flyte: Any, more: int) -> None:
        for execution in ("runs", "succeeds", "fails"):
            flyte.start(execution)
        flyte.end("succeeds", ago=timedelta(minutes=5))
        flyte.end("fails", phase=5)
        source = FlyteWorkflows(lab.client)
        found: dict[Owner, Any] = {}
        for group in (["runs", "succeeds"], ["fails", "unheard-of"]):
            others = [owner(f"other-{number}") for number in range(more)]
            found |= source.ask([*(owner(name) for name in group), *others])
        assert isinstance(found[owner("runs")], Alive)
        assert not found[owner("succeeds")].failed
        assert abs(found[owner("succeeds")].at - (datetime.now(UTC) - timedelta(minutes=5))) < timedelta(minutes=1)
        assert found[owner("fails")].failed
        assert isinstance(found[owner("unheard-of")], Ended)
        assert found[owner("unheard-of")].at is None

    def test_of_another_project_do_not_count(self, lab: Any, flyte: Any) -> None:
        flyte.start("runs")
        source = FlyteWorkflows(lab.client)
        assert isinstance(source.ask([owner("runs", "another")])[owner("runs", "another")], Ended)

    def test_with_a_name_suffix_or_without_labels_are_found(self, lab: Any, flyte: Any) -> None:
        flyte.start("runs")
        labels = {"execution-id": "suffixed", "project": "team", "domain": "development"}
        for name, own in (("suffixed-abcdefghij", labels), ("bare", {})):
            metadata = {"name": name, "namespace": lab.namespace, "labels": own}
            body = {"apiVersion": "flyte.lyft.com/v1alpha1", "kind": WORKFLOWS.kind, "metadata": metadata}
            lab.call("create", WORKFLOWS, body=body)
        found = FlyteWorkflows(lab.client).ask([owner("suffixed"), owner("bare")])
        assert [type(found[owner(name)]) for name in ("suffixed", "bare")] == [Alive, Alive]

    def test_that_cannot_be_asked_for_are_unknown(self, wire: Any, settings: Any) -> None:
        cut = ClusterClient(settings.model_copy(update={"kubeconfig": wire.kubeconfig}))
        wire.cut()
        assert isinstance(FlyteWorkflows(cut).ask([owner("runs")])[owner("runs")], Unknown)


def looked_at(report: Any) -> tuple[str, str]:
    (decision,) = report.plan.decisions
    return decision.verdict.value, decision.reason


def test_flyteadmin_is_asked_as_flytekit_is_configured_and_its_silence_keeps(
    lab: Any, janitor: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    who = lab.put("store", "trains")
    own = {"owners": "flyteadmin", "notice": "0s", "grace": "30m", "failure_retention": "2h"}
    admin = Admin()
    with serving(admin):
        monkeypatch.setenv("FLYTE_PLATFORM_URL", admin.address)
        monkeypatch.setenv("FLYTE_PLATFORM_INSECURE", "true")
        # One that it does not know may be known to another Flyte.
        unheard_of = janitor(hours=1, **own).sweep()
        assert looked_at(unheard_of) == ("Keep", "OwnerUnknown")
        assert unheard_of.completion is Completion.POSTPONED
        admin.phases["trains"] = RUNNING
        assert looked_at(janitor(hours=1, **own).sweep()) == ("Keep", "InUse")
        assert set(admin.asked) == {"team:development:trains"}
        admin.phases["trains"] = FAILED
        assert looked_at(janitor(hours=1, **own).sweep()) == ("Notice", "OwnerEnded")
    away = janitor(hours=3, **own).sweep()
    assert looked_at(away) == ("Keep", "OwnerUnknown")
    assert away.completion is Completion.POSTPONED
    assert lab.recorded(who)
    with serving(admin):
        # gRPC waits for some time before it tries an address again.
        eventually(lambda: janitor(hours=3, **own).sweep().completion is Completion.COMPLETE, "it is asked again")
    assert lab.gone(who)


def test_where_nobody_is_asked_the_ttl_alone_counts(lab: Any, flyte: Any, janitor: Any) -> None:
    flyte.start("ends")
    stays, goes = lab.put("stays", "ends"), lab.put("goes", "ends", ttl="30m")
    flyte.end("ends")
    report = janitor(hours=1, owners="none", notice="0s").sweep(dry_run=True)
    assert {item.stack: (item.verdict.value, item.reason) for item in report.plan.decisions} == {
        stays.stack: ("Keep", "OwnerNotAsked"),
        goes.stack: ("Remove", "TtlExpired"),
    }


class TestOwnerObjects:
    def job(self, lab: Any, name: str, condition: str) -> str:
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "127.0.0.1:5999/missing:1"}]}
        body = {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": pod}}}
        uid: str = lab.call("create", JOBS, body=body)["metadata"]["uid"]
        if condition:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            done = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in condition.split(",")]
            lab.status(JOBS, name, {"conditions": done, "startTime": now, "completionTime": None})
        return uid

    def test_live_until_they_are_gone_or_have_run_to_their_end(self, lab: Any) -> None:
        ask = OwnerObjects(lab.client).ask
        uid = self.job(lab, "waits", "")
        self.job(lab, "fails", "FailureTarget,Failed")
        references = {
            f"jobs.v1.batch/{lab.namespace}/waits": Alive,
            f"jobs.v1.batch/{lab.namespace}/waits/{uid}": Alive,
            f"jobs.v1.batch/{lab.namespace}/waits/0-0-0": Ended,
            f"jobs.v1.batch/{lab.namespace}/fails": Ended,
            f"jobs.v1.batch/{lab.namespace}/never-was": Ended,
            f"configmaps.v1./{lab.namespace}/kube-root-ca.crt": Alive,
            # Neither of these is proof of anything.
            f"trainings.v1.example.com/{lab.namespace}/waits": Unknown,
            f"Job/{lab.namespace}/waits": Unknown,
            "waits": Unknown,
        }
        found = ask(references)
        assert {reference: type(answer) for reference, answer in found.items()} == references
        failed = found[f"jobs.v1.batch/{lab.namespace}/fails"]
        assert isinstance(failed, Ended)
        assert failed.failed
        assert failed.at is not None

    def test_keep_and_end_a_service(self, lab: Any, janitor: Any) -> None:
        who = lab.put("store")
        lab.call("create", CONFIG_MAPS, body={"metadata": {"name": "owner"}})
        lab.annotate(who, owner_object=f"configmaps.v1./{lab.namespace}/owner")
        own = {"notice": "0s", "grace": "0s"}
        (kept,) = janitor(hours=1, **own).sweep().plan.decisions
        assert kept.reason == "InUse"
        lab.call("delete", CONFIG_MAPS, "owner")
        janitor(hours=1, **own).sweep()
        assert lab.gone(who)
