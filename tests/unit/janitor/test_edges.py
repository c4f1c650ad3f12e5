"""What surrounds the plan: what is read from a checkpoint, remembered, reported and accepted as a setting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from provisioner.engine.checkpoint import Checkpoint, PendingOperation, Resource
from provisioner.engine.origin import backend_id
from provisioner.errors import TransientError, UsageError
from provisioner.janitor.decision import Action, Decision, Plan, Verdict
from provisioner.janitor.facts import Case
from provisioner.janitor.memory import Memory
from provisioner.janitor.outcome import Completion, Outcome, Report, Result
from provisioner.janitor.policy import Source
from provisioner.janitor.recorded import facts_of
from provisioner.janitor.remedies import recovery_steps
from provisioner.janitor.settings import load
from provisioner.settings import Settings

IDENTITY = {"project": "p", "domain": "d", "namespace": "ns", "service": "s", "stack": "s-1", "owner": "exec"}


def checkpoint(**component: object) -> Checkpoint:
    inputs = {"identity": IDENTITY, "spec": {"ttl": "1h"}, "cluster": "c1", **component}
    resources = (
        Resource("urn:a::stack", "pulumi:pulumi:Stack", outputs={"specHash": "x"}),
        Resource("urn:a::s", "data-service:index:DataService", inputs=inputs),
        Resource("urn:a::p", "pulumi:providers:kubernetes", custom=True),
        Resource("urn:a::s", "kubernetes:core/v1:Service", True, "ns/s", outputs={"metadata": {"uid": "u1"}}),
    )
    document = {"deployment": {"resources": [{"urn": item.urn, "protect": item.custom} for item in resources[3:]]}}
    return Checkpoint("s-1", resources=resources, document=document)


class TestCheckpoint:
    def test_facts(self):
        facts = facts_of(checkpoint(), destroy_failed=False)
        assert facts.identity is not None
        assert facts.identity.owner == "exec"
        assert (facts.ttl, facts.start_deadline, facts.cluster) == (3600, 1800, "c1")
        assert (facts.applied, facts.resources, facts.objects) == (True, 2, 1)
        assert facts.uids == {"u1"}
        assert facts.protected == ("s",)
        assert not facts.deleting

    @pytest.mark.parametrize("broken", [{"identity": {"project": 1}}, {"identity": None}, {"identity": "p"}])
    def test_an_identity_that_is_none_is_foreign_and_not_empty(self, broken):
        facts = facts_of(checkpoint(**broken), destroy_failed=False)
        assert facts.foreign
        assert not facts.empty

    @pytest.mark.parametrize("ttl", ["soon", 7, None, ["1h"]])
    def test_a_ttl_that_is_none_is_not_over(self, ttl):
        assert facts_of(checkpoint(spec={"ttl": ttl}), destroy_failed=False).ttl is None

    def test_a_pending_create_is_not_empty(self):
        pending = PendingOperation("creating", Resource("urn:a::s", "kubernetes:core/v1:Service", True))
        facts = facts_of(Checkpoint("s-1", pending_operations=(pending,)), destroy_failed=False)
        assert not facts.empty

    def test_a_pending_deletion_is_a_removal_that_had_begun(self):
        pending = PendingOperation("deleting", Resource("urn:a::s", "kubernetes:core/v1:Service", True))
        assert facts_of(replace(checkpoint(), pending_operations=(pending,)), destroy_failed=False).deleting

    def test_nothing_at_all_is_empty(self):
        assert facts_of(Checkpoint("s-1"), destroy_failed=False).empty


class TestMemory:
    @pytest.fixture
    def memory(self, tmp_path: Path) -> Memory:
        return Memory.beside(f"file://{tmp_path}", "")

    def test_gives_back_what_it_was_given(self, make, memory):
        plain = Case("a", "OwnerEnded", make.NOW)
        failing = Case("b", "TtlExpired", make.NOW, 3, make.NOW + timedelta(hours=1), "Timeout", "no", ("do this",))
        for case in (plain, failing):
            memory.remember(case)
        with ThreadPoolExecutor(2) as readers:
            assert memory.cases(readers) == {"a": plain, "b": failing}
        memory.forget("a")
        memory.forget("a")
        assert memory.case("a") is None

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"reason": "x", "first_seen": "2026-05-09T12:00:00"}'])
    def test_begins_anew_with_what_cannot_be_read(self, make, memory, tmp_path, content):
        memory.remember(Case("a", "OwnerEnded", make.NOW))
        (path,) = tmp_path.rglob("a.json")
        path.write_bytes(content)
        assert memory.case("a") is None

    def test_needs_a_place_for_files(self):
        with pytest.raises(UsageError, match="cannot be kept"):
            Memory.beside("file:///tmp", "https://example.com")


class TestBackendId:
    def test_of_a_folder_stays_and_is_another_for_another_folder(self, tmp_path):
        one, two = (Settings(backend=f"file://{tmp_path / name}") for name in ("one", "two"))
        assert backend_id(one) == backend_id(one)
        assert backend_id(one) != backend_id(two)
        assert len(backend_id(one)) == 10

    def test_of_a_folder_is_one_for_all_who_ask_at_once(self, tmp_path):
        settings = Settings(backend=f"file://{tmp_path}")
        with ThreadPoolExecutor(8) as askers:
            assert len(set(askers.map(lambda _: backend_id(settings), range(64)))) == 1

    def test_of_a_bucket_follows_from_its_place(self):
        here, same, there, other = (
            backend_id(Settings(backend=url))
            for url in (
                "s3://bucket/state?region=a",
                "s3://bucket/state?region=b",
                "s3://bucket/state?endpoint=minio:9000",
                "s3://bucket/other",
            )
        )
        assert here == same
        assert len({here, there, other}) == 3


class TestSettings:
    def test_from_the_environment(self, monkeypatch):
        monkeypatch.setenv("PROVISIONER_GC_OWNERS", "flyteadmin, lease")
        monkeypatch.setenv("PROVISIONER_GC_GRACE", "1h")
        monkeypatch.setenv("PROVISIONER_GC_NOTICE", "0s")
        monkeypatch.setenv("PROVISIONER_GC_MAX_SHARE", "25%")
        monkeypatch.setenv("PROVISIONER_GC_VOLUME_RETENTION", "never")
        assert load(max_share="0.5").max_share == 0.5
        policy = load().policy()
        assert policy.sources == {Source.FLYTEADMIN, Source.LEASE}
        assert (policy.default.grace, policy.default.notice, policy.max_share) == (3600, 0, 0.25)
        assert policy.default.volume_retention is None

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"owners": "none,lease"}, "none stands alone"),
            ({"owners": "flyte"}, "--owners=flyte: .*'flyteadmin'"),
            ({"owners": ""}, "--owners=: at least one"),
            ({"grace": "later"}, "--grace=later: a duration such as 90s"),
            ({"max_share": "150%"}, "--max-share=150%: at most 100%"),
            ({"max_destroys": 0}, "--max-destroys=0: at least 1"),
            ({"verify_timeout": "2h"}, "--verify-timeout=2h: at most 1h"),
            ({"lock_pods": "no-namespace"}, "--lock-pods=no-namespace: NAMESPACE/PREFIX"),
            ({"retry_first": "2h", "retry_cap": "1h"}, "at least PROVISIONER_GC_RETRY_FIRST"),
        ],
    )
    def test_wrong_ones_are_named_with_what_was_given_and_what_is_accepted(self, given, named):
        with pytest.raises(UsageError, match=named):
            load(**given)

    def test_all_wrong_variables_are_named_at_once(self, monkeypatch):
        monkeypatch.setenv("PROVISIONER_GC_NOTICE", "soon")
        monkeypatch.setenv("PROVISIONER_GC_MAX_DESTROY", "5")
        with pytest.raises(UsageError) as raised:
            load(parallel=0)
        lines = [line.strip() for line in raised.value.message.splitlines()[1:]]
        assert lines[0].startswith("PROVISIONER_GC_MAX_DESTROY: there is no such setting")
        assert lines[0].endswith("do you mean PROVISIONER_GC_MAX_DESTROYS?")
        assert lines[1].startswith("PROVISIONER_GC_NOTICE=soon: a duration")
        assert lines[2] == "--parallel=0: at least 1"

    def test_the_links_to_a_service_beside_its_pod_are_no_settings(self, monkeypatch):
        for end in ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_9090_TCP_ADDR"):
            monkeypatch.setenv(f"PROVISIONER_GC_{end}", "10.0.0.1")
        assert load() == load()

    def test_rules_by_project_and_domain(self, tmp_path):
        path = tmp_path / "rules.yaml"
        path.write_text(
            "rules:\n"
            "- {domain: production, grace: 2h, volumeRetention: never}\n"
            "- {project: 'team-*', domain: production, failureRetention: 12h}\n"
        )
        policy = load(rules=path).policy()
        assert policy.rules("any", "development") == policy.default
        production = replace(policy.default, grace=7200, volume_retention=None)
        assert policy.rules("any", "production") == production
        assert policy.rules("team-a", "production") == replace(production, failure_retention=43200)

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            ("rules: [{grace: later}]", r"rules\.0\.grace"),
            ("rules: [{graze: 1h}]", "graze"),
            ("rules: [{grace: }]", "grace: a value is missing"),
            ("- a", "valid dictionary"),
            ("rules: [", "cannot be read"),
        ],
    )
    def test_wrong_rules_are_named(self, tmp_path, content, named):
        path = tmp_path / "rules.yaml"
        path.write_text(content)
        with pytest.raises(UsageError, match=named):
            load(rules=path).policy()

    def test_rules_that_are_missing_are_named(self, tmp_path):
        with pytest.raises(UsageError, match=r"none\.yaml cannot be read"):
            load(rules=tmp_path / "none.yaml").policy()


class TestReport:
    def report(self, make, *decisions: Decision, results: tuple[Result, ...] = (), **plan: str) -> Report:
        outcomes = tuple(Outcome(item, result) for item, result in zip(decisions, results, strict=False))
        return Report(Plan("c", decisions, **plan), make.NOW, 1.0, outcomes=outcomes)

    def decision(self, verdict: Verdict, reason: str, hours: int = 1) -> Decision:
        return Decision("s", "", timedelta(hours=hours), verdict, reason, "", Action.DESTROY)

    @pytest.mark.parametrize(
        ("result", "completion"),
        [
            (Result.DONE, Completion.COMPLETE),
            (Result.GONE, Completion.COMPLETE),
            (Result.CHANGED, Completion.COMPLETE),
            (Result.BUSY, Completion.POSTPONED),
            (Result.UNDONE, Completion.POSTPONED),
            (Result.STOPPED, Completion.POSTPONED),
            (Result.FAILED, Completion.FAILED),
        ],
    )
    def test_a_removal(self, make, result, completion):
        removal = self.decision(Verdict.REMOVE, "OwnerEnded")
        assert self.report(make, removal, results=(result,)).completion is completion

    @pytest.mark.parametrize(
        ("verdict", "reason", "completion"),
        [
            (Verdict.KEEP, "InUse", Completion.COMPLETE),
            (Verdict.NOTICE, "OwnerEnded", Completion.COMPLETE),
            (Verdict.KEEP, "OwnerUnknown", Completion.POSTPONED),
            (Verdict.KEEP, "OperationRunning", Completion.POSTPONED),
            (Verdict.POSTPONE, "Brake", Completion.POSTPONED),
            (Verdict.POSTPONE, "Backoff", Completion.POSTPONED),
            (Verdict.POSTPONE, "Stalled", Completion.FAILED),
        ],
    )
    def test_what_was_not_done(self, make, verdict, reason, completion):
        assert self.report(make, self.decision(verdict, reason)).completion is completion

    def test_a_refusal_is_nothing_else(self, make):
        stalled = self.decision(Verdict.POSTPONE, "Stalled")
        assert self.report(make, stalled, refused="another cluster").completion is Completion.REFUSED

    def test_the_oldest_orphan_is_one_that_is_still_there(self, make):
        removed, waiting = self.decision(Verdict.REMOVE, "a", 9), self.decision(Verdict.NOTICE, "b", 5)
        used = self.decision(Verdict.KEEP, "InUse", 99)
        assert self.report(make, removed, waiting, used, results=(Result.DONE,)).oldest_orphan == timedelta(hours=5)
        failed = self.report(make, removed, waiting, used, results=(Result.FAILED,))
        assert failed.oldest_orphan == timedelta(hours=9)


def test_recovery_steps_end_with_the_last_resort():
    error = TransientError("no connection", reason="Unreachable", hint="is the cluster up?")
    steps = recovery_steps(error, "store-a")
    assert "is the cluster up?" in steps
    assert "provisioner gc forget store-a" in steps[-1]
