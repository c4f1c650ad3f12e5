"""What projects may have: rules in order, refusals with their figures, and files with every problem named."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster.live import SizedSet
from provisioner.cluster.transport import NotFoundError
from provisioner.control.access import (
    AccessRule,
    Consumption,
    Limits,
    check_account,
    check_namespace,
    check_quota,
    consumption,
    gpus_of,
    limits,
    read_access,
)
from provisioner.control.quota import Quotas
from provisioner.control.reservations import Reservations, parse_reserved
from provisioner.errors import PermanentError, RefusedError, TransientError, UsageError
from provisioner.identity import for_name
from provisioner.spec import parse_spec

WHO = for_name("team-a", "production", namespace="n", name="graph")


def spec(**fields: object):
    return parse_spec({"image": "a:1", "ports": [{"name": "main", "port": 9000}], **fields})


def test_a_later_rule_wins_in_what_it_names_and_the_rest_stays() -> None:
    rules = (
        AccessRule(services=3, gpus=8, namespaces=("{project}-{domain}",)),
        AccessRule(project="team-*", gpus=64),
        AccessRule(project="team-a", domain="staging", services=0),
    )
    assert limits(rules, "team-a", "production") == Limits(("{project}-{domain}",), None, 3, None, 64)
    assert limits(rules, "team-a", "staging").services == 0
    assert limits(rules, "other", "production").gpus == 8
    assert limits((), "any", "any") == Limits()
    assert not limits((), "any", "any").has_quota


def test_a_namespace_and_an_account_are_refused_with_what_is_allowed() -> None:
    allowed = Limits(namespaces=("{project}-{domain}", "shared-*"), service_accounts=("graph-*",))
    check_namespace(allowed, "team-a", "production", "team-a-production")
    check_namespace(allowed, "team-a", "production", "shared-x")
    with pytest.raises(RefusedError, match="may use: team-a-production, shared-") as caught:
        check_namespace(allowed, "team-a", "production", "team-b-production")
    assert caught.value.reason == "NamespaceNotAllowed"
    check_account(allowed, "team-a", "production", spec(serviceAccount="graph-reader"))
    with pytest.raises(RefusedError, match="service account 'default' is not one") as caught:
        check_account(allowed, "team-a", "production", spec())
    assert caught.value.reason == "ServiceAccountNotAllowed"
    check_account(Limits(), "team-a", "production", spec(serviceAccount="any"))


def test_a_quota_is_refused_with_its_figures() -> None:
    allowed = Limits(services=2, replicas=10, gpus=4)
    check_quota(allowed, WHO, Consumption(1, 6, 0), Consumption(1, 4, 4), Consumption())
    with pytest.raises(RefusedError) as caught:
        check_quota(allowed, WHO, Consumption(2, 8, 4), Consumption(1, 3, 0), Consumption())
    assert caught.value.reason == "ProjectQuotaExceeded"
    assert "services: 2 allowed, 2 in use, 1 asked for" in caught.value.message
    assert "replicas: 10 allowed, 8 in use, 3 asked for" in caught.value.message
    assert "GPUS" not in caught.value.message


@given(
    st.builds(Consumption, st.integers(0, 5), st.integers(0, 50), st.integers(0, 50)),
    st.builds(Consumption, st.just(1), st.integers(0, 50), st.integers(0, 50)),
    st.integers(0, 60),
)
def test_nothing_above_the_bound_and_everything_up_to_it(others, wanted, bound: int) -> None:
    allowed = Limits(replicas=bound)
    fits = others.replicas + wanted.replicas <= bound or wanted.replicas == 0
    try:
        check_quota(allowed, WHO, others, wanted, Consumption())
    except RefusedError:
        assert not fits
    else:
        assert fits
    # What does not grow is never refused.
    check_quota(allowed, WHO, others, wanted, wanted)


def test_gpus_are_counted_whatever_they_are_called() -> None:
    counted = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.5gb": "1", "amd.com/gpu": "1", "gpu.intel.com/i915": "1"}
    assert gpus_of({**counted, "cpu": "8", "example.com/fpga": "3"}) == 5
    wanted = spec(replicas=3, resources={"limits": {"nvidia.com/gpu": "2"}})
    assert consumption(wanted) == Consumption(1, 3, 6)


def test_a_file_is_read_and_a_wrong_one_named_with_every_problem(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text("projects:\n- {project: gnn, serviceAccounts: [default], gpus: 8}\n")
    assert read_access(good) == (AccessRule(project="gnn", service_accounts=("default",), gpus=8),)
    assert read_access(None) == ()
    bad = tmp_path / "bad.yaml"
    bad.write_text("projects:\n- {gpu: 8, services: -1}\n")
    with pytest.raises(UsageError) as caught:
        read_access(bad)
    for part in ("bad.yaml", "projects[0].gpu", "did you mean gpus?", "projects[0].services", "-1"):
        assert part in caught.value.message
    for text in ("[", "[]", "projects: 3", ""):
        bad = tmp_path / f"bad-{len(text)}.yaml"
        bad.write_text(text)
        with pytest.raises(UsageError, match="bad-"):
            read_access(bad)
    with pytest.raises(UsageError, match="cannot be read"):
        read_access(tmp_path / "missing.yaml")


class Live:
    """What the cluster shows."""

    def __init__(self, *sets: SizedSet) -> None:
        self.sets = list(sets)

    def sized(self, project: str, domain: str) -> list[SizedSet]:
        return self.sets


class LeaseApi:
    """The API server's Leases: a change that names an old version is refused."""

    def __init__(self) -> None:
        self.lease: dict | None = None
        self.version = 0
        self.before_write = lambda: None

    def json(self, call, body=None):
        if call.verb == "get":
            if self.lease is None:
                raise NotFoundError("no such Lease")
            return {"metadata": {"resourceVersion": str(self.version), "annotations": dict(self.lease)}}
        self.before_write, before = (lambda: None), self.before_write
        before()
        metadata = body["metadata"]
        if call.verb == "create" and self.lease is not None:
            raise PermanentError("it exists", reason="AlreadyExists")
        if metadata.get("resourceVersion", str(self.version)) != str(self.version):
            raise TransientError("changed meanwhile", reason="Conflict")
        self.version += 1
        changed = (self.lease or {}) | metadata["annotations"]
        self.lease = {key: value for key, value in changed.items() if value is not None}
        return {}


def quotas_of(api: LeaseApi, rule: AccessRule, *sets: SizedSet, now=lambda: datetime.now(UTC)) -> Quotas:
    return Quotas((rule,), Live(*sets), Reservations(api, "n", 60, now))


def test_what_is_being_made_counts_before_the_cluster_shows_it(make_request) -> None:
    quotas = quotas_of(LeaseApi(), AccessRule(replicas=5), SizedSet("other", 2, {}))
    first = make_request(replicas=3)
    second = make_request(replicas=1)
    second = type(second)(for_name("p", "d", namespace="n", name="second"), second.spec, second.accepted_at)
    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with quotas.reserved(first):
            held.set()
            may_end.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    with pytest.raises(RefusedError, match="5 allowed, 5 in use, 1 asked for"), quotas.reserved(second):
        pass
    may_end.set()
    thread.join()
    with quotas.reserved(second):
        pass


def test_its_own_replicas_are_not_counted_twice(make_request) -> None:
    request = make_request(replicas=4)
    quotas = quotas_of(LeaseApi(), AccessRule(replicas=5), SizedSet(request.stack, 3, {}))
    with quotas.reserved(request):
        pass


def test_without_a_quota_nothing_is_counted(make_request) -> None:
    quotas = Quotas((AccessRule(namespaces=("n",)),), None, None)
    with quotas.reserved(make_request()):
        pass


@pytest.fixture
def two(make_request):
    """Two services of one project, of three replicas each."""
    first = make_request(replicas=3)
    return first, type(first)(for_name("p", "d", namespace="n", name="second"), first.spec, first.accepted_at)


@pytest.mark.parametrize("known", [False, True], ids=["first Lease", "known Lease"])
def test_another_server_that_counts_at_the_same_moment_is_seen(two, known: bool) -> None:
    first, second = two
    api, rule = LeaseApi(), AccessRule(replicas=5)
    if known:
        with quotas_of(api, rule).reserved(first):
            pass
    with ExitStack() as other:
        # Between this server's look and its write, the other one reserves.
        api.before_write = lambda: other.enter_context(quotas_of(api, rule).reserved(first))
        with (
            pytest.raises(RefusedError, match="5 allowed, 3 in use, 3 asked for"),
            quotas_of(api, rule).reserved(second),
        ):
            pass
    with quotas_of(api, rule).reserved(second):
        pass


def test_what_a_killed_server_reserved_is_free_again_once_it_must_have_ended(two) -> None:
    first, second = two
    api, rule = LeaseApi(), AccessRule(replicas=5)
    ExitStack().enter_context(quotas_of(api, rule).reserved(first))
    later = datetime.now(UTC) + timedelta(seconds=61)
    with quotas_of(api, rule, now=lambda: later).reserved(second):
        assert len(api.lease) == 1  # the old one is cleared away
    assert api.lease == {}


@given(st.text())
def test_no_annotation_is_a_fault(value: str) -> None:
    assert parse_reserved(value) is None
