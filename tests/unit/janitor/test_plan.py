"""Each kind of orphan beside the same thing in use: what becomes of it, and for which reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from provisioner.engine.recovery import Holder
from provisioner.janitor.decision import Action, Verdict
from provisioner.janitor.facts import Alive, Case, Ended, Inventory, LockFacts, Owner, PodFacts, Unknown
from provisioner.janitor.plan import plan
from provisioner.janitor.policy import Override, Policy, Source

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def decided(make: SimpleNamespace):
    """The verdict, reason and action for the service `s`."""

    def decide(known: Inventory, policy: Policy | None = None) -> tuple[Verdict, str, Action]:
        found = make.main(plan(known, make.NOW, policy or make.UNBOUNDED), "s")
        return found.verdict, found.reason, found.action

    return decide


KEEP, REMOVE, NOTICE, POSTPONE = Verdict.KEEP, Verdict.REMOVE, Verdict.NOTICE, Verdict.POSTPONE


class TestOwner:
    def test_alive_keeps(self, make, decided):
        assert decided(make.inventory(make.record("s"), make.objects("s"))) == (KEEP, "InUse", Action.NONE)

    @pytest.mark.parametrize("recorded", [True, False])
    def test_ended_removes_whether_recorded_or_not(self, make, decided, recorded):
        parts = [make.record("s")] if recorded else []
        known = make.inventory(*parts, make.objects("s"), executions={make.owner(): Ended("it ended", make.LONG_AGO)})
        action = Action.DESTROY if recorded else Action.DELETE_OBJECTS
        assert decided(known) == (REMOVE, "OwnerEnded", action)

    def test_unknown_keeps_even_what_outlived_its_ttl(self, make, decided):
        known = make.inventory(
            make.record("s"), make.objects("s", ttl="1h"), executions={make.owner(): Unknown("timeout")}
        )
        assert decided(known) == (KEEP, "OwnerUnknown", Action.NONE)

    def test_one_source_that_says_alive_is_enough(self, make, decided):
        known = make.inventory(
            make.record("s"),
            make.objects("s", owner_object="jobs.v1.batch/ns/train"),
            executions={make.owner(): Ended("it ended", make.LONG_AGO)},
            referents={"jobs.v1.batch/ns/train": Alive("it exists")},
        )
        assert decided(known) == (KEEP, "InUse", Action.NONE)

    def test_one_source_that_says_alive_outweighs_one_that_cannot_be_asked(self, make, decided):
        known = make.inventory(
            make.record("s"),
            make.objects("s", owner_object="jobs.v1.batch/ns/train"),
            executions={make.owner(): Unknown("timeout")},
            referents={"jobs.v1.batch/ns/train": Alive("it exists")},
        )
        assert decided(known) == (KEEP, "InUse", Action.NONE)

    def test_an_end_that_one_source_cannot_date_counts_from_its_first_sight(self, make, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, grace=900))
        known = make.inventory(
            make.record("s"),
            make.objects("s", owner_object="jobs.v1.batch/ns/train"),
            executions={make.owner(): Ended("it ended", make.LONG_AGO)},
            referents={"jobs.v1.batch/ns/train": Ended("it is gone")},
        )
        assert decided(known, policy)[:2] == (NOTICE, "OwnerEnded")

    def test_one_source_that_cannot_be_asked_keeps(self, make, decided):
        known = make.inventory(
            make.record("s"),
            make.objects("s", owner_object="jobs.v1.batch/ns/train"),
            executions={make.owner(): Ended("it ended", make.LONG_AGO)},
            referents={"jobs.v1.batch/ns/train": Unknown("forbidden")},
        )
        assert decided(known) == (KEEP, "OwnerUnknown", Action.NONE)

    @pytest.mark.parametrize("mine", [Owner("local", "local", "local-1a2b"), Owner("p", "d", "flyte2.run1")], ids=str)
    def test_local_runs_and_those_of_flyte_2_are_never_asked_about(self, make, decided, mine):
        known = make.inventory(make.record("s", by=mine), make.objects("s", by=mine), executions={mine: Ended("gone")})
        assert decided(known) == (KEEP, "OwnerNotAsked", Action.NONE)

    def test_nobody_asked_leaves_the_ttl_alone(self, make, decided):
        policy = replace(make.UNBOUNDED, sources=frozenset({Source.NONE}))
        known = make.inventory(make.record("s"), make.objects("s"), executions={make.owner(): Ended("it ended")})
        assert decided(known, policy) == (KEEP, "OwnerNotAsked", Action.NONE)
        known = make.inventory(make.record("s"), make.objects("s", ttl="1h"))
        assert decided(known, policy) == (REMOVE, "TtlExpired", Action.DESTROY)

    def test_a_rule_asks_nobody_about_the_executions_of_a_project(self, make, decided):
        ended = {make.owner(): Ended("no object of it here", make.LONG_AGO)}
        policy = replace(make.UNBOUNDED, overrides=(Override(project="p", changes=(("executions", False),)),))
        known = make.inventory(make.record("s"), make.objects("s"), executions=ended)
        assert decided(known, policy) == (KEEP, "OwnerNotAsked", Action.NONE)
        over = make.inventory(make.record("s"), make.objects("s", ttl="1h"), executions=ended)
        assert decided(over, policy) == (REMOVE, "TtlExpired", Action.DESTROY)
        another = replace(policy, overrides=(Override(project="q", changes=(("executions", False),)),))
        assert decided(known, another) == (REMOVE, "OwnerEnded", Action.DESTROY)

    def test_nobodys_service_stays(self, make, decided):
        nobody = make.owner("")
        known = make.inventory(make.record("s", by=nobody), make.objects("s", by=nobody))
        assert decided(known) == (KEEP, "NoOwner", Action.NONE)

    def test_nobodys_service_is_bounded_where_the_rules_say_so(self, make, decided):
        nobody = make.owner("")
        known = make.inventory(make.record("s", by=nobody), make.objects("s", by=nobody))
        rules = replace(make.AT_ONCE, max_age=86400)
        assert decided(known, replace(make.UNBOUNDED, default=rules)) == (REMOVE, "MaxAgeExceeded", Action.DESTROY)

    def test_deletion_policy_retain_keeps_until_its_ttl(self, make, decided):
        ended = {make.owner(): Ended("it ended", make.LONG_AGO)}
        kept = make.inventory(make.record("s"), make.objects("s", deletion_policy="Retain"), executions=ended)
        assert decided(kept) == (KEEP, "Retained", Action.NONE)
        over = make.inventory(make.record("s"), make.objects("s", deletion_policy="Retain", ttl="1h"), executions=ended)
        assert decided(over) == (REMOVE, "TtlExpired", Action.DESTROY)


class TestLeases:
    def test_held_keeps_even_what_outlived_its_ttl(self, make, decided):
        nobody = make.owner("")
        parts = make.record("s", by=nobody), make.objects("s", by=nobody, ttl="1h")
        held = make.lease("s", expires=make.NOW + HOUR)
        assert decided(make.inventory(*parts, held)) == (KEEP, "InUse", Action.NONE)

    def test_all_expired_removes(self, make, decided):
        nobody = make.owner("")
        known = make.inventory(
            make.record("s", by=nobody),
            make.objects("s", by=nobody),
            make.lease("s", expires=make.NOW - HOUR, holder="a"),
            make.lease("s", expires=make.NOW - 2 * HOUR, holder="b"),
        )
        assert decided(known) == (REMOVE, "LeaseExpired", Action.DESTROY)

    @pytest.mark.parametrize("holder", ["p:d:user", "p:d:user:n0"])
    def test_that_of_an_execution_that_ended_is_none(self, make, decided, holder):
        nobody = make.owner("")
        parts = make.record("s", by=nobody), make.objects("s", by=nobody, users="lease")
        held = make.lease("s", expires=make.NOW + HOUR, holder=holder)
        ended = {make.owner("user"): Ended("it ended", make.LONG_AGO)}
        assert decided(make.inventory(*parts, held, executions=ended)) == (REMOVE, "LeaseExpired", Action.DESTROY)
        for unclear in (Alive("it runs"), Unknown("nobody answers")):
            known = make.inventory(*parts, held, executions={make.owner("user"): unclear})
            assert decided(known) == (KEEP, "InUse", Action.NONE)
        other = make.lease("s", expires=make.NOW + HOUR, holder="p:d:other:n0")
        found = plan(make.inventory(*parts, held, other, executions=ended), make.NOW, make.UNBOUNDED)
        assert {(item.verdict, item.action) for item in found.decisions} == {
            (KEEP, Action.NONE),
            (Verdict.TIDY, Action.DELETE_LEASES),
        }

    def test_none_left_of_a_shared_service_removes(self, make, decided):
        nobody = make.owner("")
        known = make.inventory(make.record("s", by=nobody), make.objects("s", by=nobody, users="lease"))
        assert decided(known) == (REMOVE, "LeaseExpired", Action.DESTROY)

    def test_that_may_not_be_listed_keep(self, make, decided):
        nobody = make.owner("")
        parts = make.record("s", by=nobody), make.objects("s", by=nobody, users="lease")
        assert decided(make.inventory(*parts, unlisted=("leases",))) == (KEEP, "OwnerUnknown", Action.NONE)

    def test_the_last_expired_one_stays_while_notice_is_given(self, make):
        nobody = make.owner("")
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, notice=600))
        parts = make.record("s", by=nobody), make.objects("s", by=nobody)
        known = make.inventory(*parts, make.lease("s", expires=make.NOW - HOUR))
        assert [item.action for item in plan(known, make.NOW, policy).decisions] == [Action.NOTIFY]

    def test_an_expired_one_of_a_service_in_use_is_deleted_alone(self, make):
        known = make.inventory(make.record("s"), make.objects("s"), make.lease("s", expires=make.NOW - HOUR))
        found = plan(known, make.NOW, make.UNBOUNDED)
        assert {(item.verdict, item.action) for item in found.decisions} == {
            (KEEP, Action.NONE),
            (Verdict.TIDY, Action.DELETE_LEASES),
        }


class TestStack:
    def test_empty_record_goes_without_notice(self, make, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, notice=3600))
        empty = make.record("s", identity=None, resources=0, objects=0)
        assert decided(make.inventory(empty), policy) == (REMOVE, "EmptyRecord", Action.REMOVE_RECORD)

    def test_empty_record_that_nobody_dated_waits_from_its_first_sight(self, make, decided):
        empty = make.record("s", modified=None, identity=None, resources=0, objects=0)
        assert decided(make.inventory(empty)) == (NOTICE, "EmptyRecord", Action.NOTIFY)

    def test_what_is_no_data_service_is_not_ours(self, make, decided):
        other = make.record("s", identity=None, resources=4, objects=4, cluster="")
        policy = replace(make.UNBOUNDED, unmarked=True)
        assert decided(make.inventory(other), policy) == (KEEP, "NotOurs", Action.NONE)

    def test_without_objects_goes_when_nobody_owns_it(self, make, decided):
        assert decided(make.inventory(make.record("s", by=make.owner("")))) == (REMOVE, "ObjectsGone", Action.DESTROY)

    def test_without_its_statefulset_goes_when_nobody_owns_it(self, make, decided):
        nobody = make.owner("")
        known = make.inventory(make.record("s", by=nobody), make.objects("s", by=nobody)[1:])
        assert decided(known) == (REMOVE, "ObjectsGone", Action.DESTROY)

    def test_without_objects_stays_while_its_owner_lives(self, make, decided):
        assert decided(make.inventory(make.record("s"))) == (KEEP, "InUse", Action.NONE)

    def test_unfinished_removal_is_finished_while_its_owner_lives(self, make, decided):
        known = make.inventory(make.record("s", deleting=True), make.objects("s")[1:])
        assert decided(known) == (REMOVE, "FailedDestroy", Action.DESTROY)

    def test_unfinished_removal_waits_for_a_user(self, make, decided):
        held = make.lease("s", expires=make.NOW + HOUR)
        known = make.inventory(make.record("s", deleting=True), make.objects("s")[1:], held)
        assert decided(known) == (KEEP, "InUse", Action.NONE)

    def test_unreadable_stays_and_says_so(self, make, decided):
        known = make.inventory(
            make.record("s", unreadable="cut short"), executions={make.owner(): Ended("it ended", make.LONG_AGO)}
        )
        assert decided(known) == (KEEP, "StateUnreadable", Action.NONE)


class TestStartDeadline:
    def test_half_made_goes_while_its_owner_lives(self, make, decided):
        known = make.inventory(make.record("s", applied=False), make.objects("s")[1:])
        assert decided(known) == (REMOVE, "StartDeadlineExpired", Action.DESTROY)

    def test_half_made_has_its_time(self, make, decided):
        young = make.NOW - timedelta(minutes=20)
        known = make.inventory(make.record("s", applied=False, modified=young), make.objects("s", created=young)[1:])
        assert decided(known) == (KEEP, "InUse", Action.NONE)

    @pytest.mark.parametrize(
        ("pods", "expected"),
        [
            ((PodFacts("s-0", None, False),), (KEEP, "InUse", Action.NONE)),
            ((), (KEEP, "InUse", Action.NONE)),
        ],
    )
    def test_what_cannot_be_proven_stays(self, make, decided, pods, expected):
        parts = make.record("s"), make.objects("s", ready=0, start_deadline="30m")
        assert decided(make.inventory(*parts, pods={"s": pods})) == expected

    def test_never_ready_goes(self, make, decided):
        parts = make.record("s"), make.objects("s", ready=0, start_deadline="30m")
        never = (PodFacts("s-0", make.LONG_AGO + timedelta(minutes=1), False),)
        assert decided(make.inventory(*parts, pods={"s": never})) == (REMOVE, "StartDeadlineExpired", Action.DESTROY)

    def test_once_ready_stays(self, make, decided):
        parts = make.record("s"), make.objects("s", ready=0, start_deadline="30m")
        once = (PodFacts("s-0", make.LONG_AGO, True), PodFacts("s-1", make.LONG_AGO, False))
        assert decided(make.inventory(*parts, pods={"s": once})) == (KEEP, "InUse", Action.NONE)

    def test_a_pod_made_later_proves_nothing(self, make, decided):
        parts = make.record("s"), make.objects("s", ready=0, start_deadline="30m")
        late = (PodFacts("s-0", make.NOW - HOUR, False),)
        assert decided(make.inventory(*parts, pods={"s": late})) == (KEEP, "InUse", Action.NONE)

    def test_pods_are_asked_for_only_then(self, make):
        parts = make.record("s"), make.objects("s", ready=0, start_deadline="30m")
        assert plan(make.inventory(*parts), make.NOW, make.UNBOUNDED).unseen == {"s"}
        ready = make.record("s"), make.objects("s", ready=1, start_deadline="30m")
        assert not plan(make.inventory(*ready), make.NOW, make.UNBOUNDED).unseen


class TestStrayObjects:
    def test_of_this_backend_go(self, make, decided):
        nobody = make.owner("")
        assert decided(make.inventory(make.objects("s", by=nobody))) == (REMOVE, "RecordGone", Action.DELETE_OBJECTS)

    @pytest.mark.parametrize(("backend", "reason"), [("elsewhere", "OtherBackend"), ("", "BackendUnknown")])
    def test_of_another_backend_stay(self, make, decided, backend, reason):
        nobody = make.owner("")
        assert decided(make.inventory(make.objects("s", by=nobody, backend=backend))) == (KEEP, reason, Action.NONE)

    @pytest.mark.parametrize(("backend", "reason"), [("elsewhere", "OtherBackend"), ("", "BackendUnknown")])
    def test_of_another_backend_stay_even_when_their_owner_ended(self, make, decided, backend, reason):
        ended = {make.owner(): Ended("it ended", make.LONG_AGO)}
        known = make.inventory(make.objects("s", backend=backend), executions=ended)
        assert decided(known) == (KEEP, reason, Action.NONE)
        removed = decided(known, replace(make.UNBOUNDED, unmarked=True))[0] is REMOVE
        assert removed is (backend == "")

    def test_on_their_way_out_are_left_alone(self, make, decided):
        nobody = make.owner("")
        going = tuple(replace(item, deleted=make.NOW) for item in make.objects("s", by=nobody))
        assert decided(make.inventory(going)) == (KEEP, "Terminating", Action.NONE)
        stuck = tuple(replace(item, deleted=make.LONG_AGO) for item in make.objects("s", by=nobody))
        assert decided(make.inventory(stuck)) == (KEEP, "TerminationStuck", Action.NONE)


class TestVolumes:
    def test_past_their_retention_go(self, make, decided):
        assert decided(make.inventory(make.claim("s"))) == (REMOVE, "VolumeRetentionExpired", Action.DELETE_VOLUMES)

    def test_have_their_time_from_the_first_sight(self, make, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, volume_retention=86400))
        seen = Case("s", "VolumeRetentionExpired", make.NOW - timedelta(hours=23))
        assert decided(make.inventory(make.claim("s")), policy)[:2] == (NOTICE, "VolumeRetentionExpired")
        assert decided(make.inventory(make.claim("s"), cases={"s": seen}), policy)[0] is NOTICE
        seen = Case("s", "VolumeRetentionExpired", make.NOW - timedelta(hours=24))
        assert decided(make.inventory(make.claim("s"), cases={"s": seen}), policy)[0] is REMOVE

    def test_stay_for_ever_where_the_rules_say_so(self, make, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, volume_retention=None))
        assert decided(make.inventory(make.claim("s")), policy) == (KEEP, "VolumesKept", Action.NONE)

    def test_of_a_service_in_use_stay(self, make, decided):
        known = make.inventory(make.record("s"), make.objects("s"), make.claim("s"))
        assert decided(known) == (KEEP, "InUse", Action.NONE)

    def test_annotated_stay(self, make, decided):
        assert decided(make.inventory(make.claim("s", keep="results"))) == (KEEP, "KeepAnnotation", Action.NONE)


class TestVeto:
    @pytest.fixture
    def orphan(self, make):
        """An orphan that nothing protects, with something different."""

        def build(**different):
            annotations = different.pop("annotations", {})
            created = different.pop("created", make.LONG_AGO)
            return make.inventory(
                make.record("s", **different),
                make.objects("s", created=created, **annotations),
                executions={make.owner(): Ended("it ended", make.LONG_AGO)},
            )

        return build

    def test_none(self, orphan, decided):
        assert decided(orphan())[0] is REMOVE

    @pytest.mark.parametrize(
        ("holder", "reason"), [(Holder.ALIVE, "OperationRunning"), (Holder.UNKNOWN, "LockHolderUnknown")]
    )
    def test_lock(self, orphan, decided, holder, reason):
        assert decided(orphan(locks=(LockFacts(holder, "process 1"),))) == (KEEP, reason, Action.NONE)

    def test_no_lock_of_the_dead(self, orphan, decided):
        assert decided(orphan(locks=(LockFacts(Holder.DEAD, "process 1"),)))[0] is REMOVE

    @pytest.mark.parametrize("value", ["true", "debugging", "2026-05-09T12:00:01Z"])
    def test_keep_annotation(self, orphan, decided, value):
        assert decided(orphan(annotations={"keep": value})) == (KEEP, "KeepAnnotation", Action.NONE)

    @pytest.mark.parametrize("value", ["false", "2026-05-09T12:00:00Z"])
    def test_no_keep_annotation_that_says_no_or_is_over(self, orphan, decided, value):
        assert decided(orphan(annotations={"keep": value}))[0] is REMOVE

    def test_protect_flag(self, orphan, decided):
        assert decided(orphan(protected=("s",))) == (KEEP, "Protected", Action.NONE)

    def test_changed_just_now(self, make, orphan, decided):
        just_now = make.NOW - timedelta(minutes=9)
        assert decided(orphan(modified=just_now)) == (KEEP, "Young", Action.NONE)
        assert decided(orphan(created=just_now)) == (KEEP, "Young", Action.NONE)
        assert decided(orphan(created=make.NOW - timedelta(minutes=10)))[0] is REMOVE

    def test_another_cluster(self, orphan, decided):
        assert decided(orphan(cluster="cluster-there")) == (KEEP, "OtherCluster", Action.NONE)

    def test_unknown_cluster(self, make, orphan, decided):
        unknown = orphan(cluster="", uids=frozenset({"another"}))
        assert decided(unknown) == (KEEP, "ClusterUnknown", Action.NONE)
        assert decided(unknown, replace(make.UNBOUNDED, unmarked=True))[0] is REMOVE

    def test_no_unknown_cluster_where_a_recorded_object_is_found(self, orphan, decided):
        assert decided(orphan(cluster=""))[0] is REMOVE

    def test_a_rule_for_its_project_and_domain(self, make, orphan, decided):
        keep = Override("p", "d*", (("keep", True),))
        assert decided(orphan(), replace(make.UNBOUNDED, overrides=(keep,))) == (KEEP, "KeptByRule", Action.NONE)
        other = Override("q", "*", (("keep", True),))
        assert decided(orphan(), replace(make.UNBOUNDED, overrides=(other,)))[0] is REMOVE

    def test_another_namespace(self, orphan, decided):
        assert decided(replace(orphan(), namespaces=("team-a",))) == (KEEP, "OutOfScope", Action.NONE)
        assert decided(replace(orphan(), namespaces=("ns",)))[0] is REMOVE

    def test_the_checkpoint_is_read_only_for_what_would_go(self, make, orphan):
        known = orphan()
        unread = replace(known, stacks={"s": replace(known.stacks["s"], checkpoint=None)})
        assert plan(unread, make.NOW, make.UNBOUNDED).unread == {"s"}
        alive = replace(unread, executions={make.owner(): Alive("runs")})
        assert not plan(alive, make.NOW, make.UNBOUNDED).unread


class TestTime:
    @pytest.fixture
    def ended(self, make):
        def build(ago: timedelta | None, *, failed: bool = False, cases=None):
            at = make.NOW - ago if ago is not None else None
            return make.inventory(
                make.record("s"),
                make.objects("s"),
                executions={make.owner(): Ended("it ended", at, failed)},
                cases=cases or {},
            )

        return build

    def test_grace_counts_from_the_owners_end(self, make, ended, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, grace=900, failure_retention=7200))
        assert decided(ended(timedelta(minutes=14)), policy)[0] is NOTICE
        assert decided(ended(timedelta(minutes=15)), policy)[0] is REMOVE
        assert decided(ended(HOUR, failed=True), policy)[0] is NOTICE
        assert decided(ended(2 * HOUR, failed=True), policy)[0] is REMOVE

    def test_grace_counts_from_the_first_sight_of_an_end_that_nobody_dated(self, make, ended, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, grace=900))
        seen = {"s": Case("s", "OwnerEnded", make.NOW - timedelta(minutes=14))}
        assert decided(ended(None), policy)[0] is NOTICE
        assert decided(ended(None, cases=seen), policy)[0] is NOTICE
        seen = {"s": Case("s", "OwnerEnded", make.NOW - timedelta(minutes=15))}
        assert decided(ended(None, cases=seen), policy)[0] is REMOVE

    def test_notice_counts_from_the_first_sight(self, make, ended, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, notice=600))
        known = ended(HOUR)
        first = plan(known, make.NOW, policy)
        assert make.main(first, "s").action is Action.NOTIFY
        after = make.applied(known, first, make.NOW)
        assert decided(after, policy) == (NOTICE, "OwnerEnded", Action.NONE)
        later = make.main(plan(after, make.NOW + timedelta(minutes=10), policy), "s")
        assert (later.verdict, later.action) == (REMOVE, Action.DESTROY)

    def test_notice_is_withdrawn_when_the_reason_is_gone(self, make, ended, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, notice=600))
        known = ended(HOUR)
        noticed = make.applied(known, plan(known, make.NOW, policy), make.NOW)
        alive = replace(noticed, executions={make.owner(): Alive("runs")})
        assert decided(alive, policy) == (KEEP, "InUse", Action.WITHDRAW)
        settled = make.applied(alive, plan(alive, make.NOW, policy), make.NOW)
        assert decided(settled, policy) == (KEEP, "InUse", Action.NONE)

    def test_notice_stays_while_nothing_can_be_known(self, make, ended, decided):
        policy = replace(make.UNBOUNDED, default=replace(make.AT_ONCE, notice=600))
        known = ended(HOUR)
        noticed = make.applied(known, plan(known, make.NOW, policy), make.NOW)
        unknown = replace(noticed, executions={make.owner(): Unknown("timeout")})
        assert decided(unknown, policy) == (KEEP, "OwnerUnknown", Action.NONE)


class TestFailures:
    @pytest.mark.parametrize(("failures", "reason"), [(1, "Backoff"), (4, "Backoff"), (5, "Stalled"), (50, "Stalled")])
    def test_wait_and_then_ask_for_a_person(self, make, decided, failures, reason):
        case = Case("s", "OwnerEnded", make.LONG_AGO, failures, make.NOW + HOUR, "Timeout", "no answer", ("do this",))
        known = make.inventory(
            make.record("s"),
            make.objects("s"),
            executions={make.owner(): Ended("it ended", make.LONG_AGO)},
            cases={"s": case},
        )
        assert decided(known) == (POSTPONE, reason, Action.NONE)
        message = make.main(plan(known, make.NOW, make.UNBOUNDED), "s").message
        assert "no answer" in message
        assert ("do this" in message) is (reason == "Stalled")
        due = replace(known, cases={"s": replace(case, retry_at=make.NOW)})
        assert decided(due)[0] is REMOVE

    def test_waits_double_up_to_a_cap(self, make):
        retry = make.UNBOUNDED.retry
        waits = [retry.delay(count).total_seconds() for count in range(1, 12)]
        assert waits[:3] == [300, 600, 1200]
        assert waits == sorted(waits)
        assert waits[-1] == retry.cap


class TestBounds:
    @pytest.fixture
    def fleet(self, make):
        """Some orphans, older the higher their number, and some in use."""

        def build(orphans: int, in_use: int) -> Inventory:
            gone = make.owner("gone")
            parts = []
            for number in range(orphans):
                name, age = f"orphan-{number:03}", make.LONG_AGO - number * HOUR
                parts += [make.record(name, by=gone), make.objects(name, by=gone, created=age)]
            for number in range(in_use):
                parts += [make.record(f"used-{number:03}"), make.objects(f"used-{number:03}")]
            executions = {make.owner(): Alive("runs"), gone: Ended("it ended", make.LONG_AGO)}
            return make.inventory(*parts, executions=executions)

        return build

    def test_at_most_so_many_the_oldest_first(self, make, fleet):
        found = plan(fleet(5, 20), make.NOW, replace(make.UNBOUNDED, max_destroys=2))
        assert {item.stack for item in found.removals} == {"orphan-004", "orphan-003"}
        postponed = [item for item in found.decisions if item.verdict is POSTPONE]
        assert {item.reason for item in postponed} == {"Limit"}
        assert len(postponed) == 3

    def test_too_large_a_share_stops_all(self, make, fleet):
        policy = replace(make.UNBOUNDED, max_share=0.5, brake_from=3)
        found = plan(fleet(6, 5), make.NOW, policy)
        assert found.brake
        assert not found.removals
        assert sum(item.reason == "Brake" for item in found.decisions) == 6
        assert not plan(fleet(5, 5), make.NOW, policy).brake

    def test_a_few_are_never_too_large_a_share(self, make, fleet):
        policy = replace(make.UNBOUNDED, max_share=0.5, brake_from=3)
        assert len(plan(fleet(3, 0), make.NOW, policy).removals) == 3
        assert plan(fleet(4, 0), make.NOW, policy).brake


class TestRefusal:
    def test_named_cluster(self, make):
        known = make.inventory(make.record("s"), make.objects("s"))
        assert plan(known, make.NOW, replace(make.UNBOUNDED, cluster="cluster-there")).refused
        assert not plan(known, make.NOW, replace(make.UNBOUNDED, cluster=make.CLUSTER)).refused

    def test_switched_kubeconfig(self, make):
        elsewhere = make.inventory(make.record("a", cluster="cluster-there"), make.record("b", cluster="cluster-there"))
        assert "cluster-there" in plan(elsewhere, make.NOW, make.UNBOUNDED).refused

    def test_no_refusal_where_clusters_share_a_backend(self, make):
        unread = replace(make.record("b"), checkpoint=None)
        both = make.inventory(make.record("a", cluster="cluster-there"), unread, make.objects("b"))
        assert not plan(both, make.NOW, make.UNBOUNDED).refused


class TestRepairs:
    def actions(self, make, known):
        return [
            (item.reason, item.action)
            for item in plan(known, make.NOW, make.UNBOUNDED).decisions
            if item.verdict is Verdict.TIDY
        ]

    def test_lock_of_the_dead_on_a_service_in_use(self, make):
        dead = make.record("s", locks=(LockFacts(Holder.DEAD, "process 1"),))
        assert self.actions(make, make.inventory(dead, make.objects("s"))) == [("DeadLock", Action.UNLOCK)]

    def test_no_lock_beside_that_of_the_living(self, make):
        locks = (LockFacts(Holder.DEAD, "process 1"), LockFacts(Holder.ALIVE, "process 2"))
        assert self.actions(make, make.inventory(make.record("s", locks=locks), make.objects("s"))) == []

    def test_remains_of_a_stack_that_is_gone(self, make):
        assert self.actions(make, make.inventory(remains={"s": make.LONG_AGO})) == [("Remains", Action.PRUNE)]
        assert self.actions(make, make.inventory(remains={"s": make.NOW})) == []

    def test_surplus_backups(self, make):
        known = make.inventory(make.record("s"), make.objects("s"), surplus=frozenset({"s"}))
        assert self.actions(make, known) == [("SurplusBackups", Action.PRUNE)]

    def test_notes_about_what_is_gone(self, make):
        known = make.inventory(cases={"s": Case("s", "OwnerEnded", make.LONG_AGO)})
        assert self.actions(make, known) == [("Gone", Action.WITHDRAW)]
