"""A server that cannot show that it lives gives up before others count it as dead; the clocks are the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.cluster.api import Call
from provisioner.cluster.transport import NotFoundError
from provisioner.control.heartbeat import Heartbeat, lease_name
from provisioner.control.holders import LeaseHolders, first_known
from provisioner.engine import Lock
from provisioner.errors import PermanentError, ProvisionerError, TransientError

AWAY = TransientError("the API server is away", reason="Unreachable", hint="start it")
FORBIDDEN = PermanentError("not allowed to patch leases", reason="Forbidden", hint="grant it")
SECONDS, GRACE = 60.0, 20.0


class Leases:
    """A cluster's Leases, which can be away."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.error: ProvisionerError | None = None
        self.transport = self

    def json(self, call: Call, *, body: Any = None, query: Any = None) -> Mapping[str, Any]:
        if self.error is not None:
            raise self.error
        if call.verb == "list":
            return {"items": list(self.kept.values())}
        name = call.name or body["metadata"]["name"]
        if call.verb != "create" and name not in self.kept:
            raise NotFoundError(f"cannot {call}: not found")
        if call.verb == "delete":
            return self.kept.pop(name)
        if call.verb in ("create", "patch"):
            self.version += 1
            metadata = {"name": name, "namespace": call.namespace, "resourceVersion": str(self.version), "uid": name}
            self.kept[name] = {"metadata": metadata, "spec": body["spec"]}
        return self.kept[name]


class Hosts:
    """One host with a heartbeat, and another one that judges its locks."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.leases = Leases()
        self.losses = 0
        self.heartbeat = self.beating("a")
        self.judge = LeaseHolders(self.leases, "n", monotonic=lambda: self.now).alive  # type: ignore[arg-type]

    def beating(self, host: str) -> Heartbeat:
        def lost() -> None:
            self.losses += 1

        return Heartbeat(
            self.leases,  # type: ignore[arg-type]
            "n",
            seconds=SECONDS,
            grace=GRACE,
            lost=lost,
            host=host,
            monotonic=lambda: self.now,
        )

    def alive(self, host: str = "a") -> bool | None:
        return self.judge(Lock(1, "u", host, datetime(2026, 5, 9, tzinfo=UTC), "path"))


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


def test_a_host_that_beats_lives_and_one_that_stops_is_dead_after_the_duration(hosts: Hosts):
    hosts.heartbeat.beat()
    assert hosts.alive() is None, "the first look tells nothing"
    hosts.now += SECONDS + 1
    hosts.heartbeat.beat()
    assert hosts.alive() is True
    hosts.now += SECONDS
    assert hosts.alive() is None
    hosts.now += 1
    assert hosts.alive() is False
    hosts.heartbeat.beat()
    assert hosts.alive() is True, "it was only slow"


def test_a_host_that_never_beat_or_ended_in_good_order_is_unknown(hosts: Hosts):
    assert hosts.alive("laptop") is None
    hosts.heartbeat.beat()
    hosts.alive()
    hosts.heartbeat.stop(clean=True)
    hosts.now += 10 * SECONDS
    assert hosts.alive() is None
    assert hosts.leases.kept == {}


def test_a_host_whose_operation_did_not_end_is_judged_when_its_lease_has_run_out(hosts: Hosts):
    hosts.heartbeat.beat()
    hosts.alive()
    hosts.heartbeat.stop(clean=False)
    hosts.now += SECONDS + 1
    assert hosts.alive() is False


def test_an_api_server_that_is_away_says_nothing_of_anybody(hosts: Hosts):
    hosts.heartbeat.beat()
    hosts.alive()
    hosts.leases.error = AWAY
    hosts.now += 10 * SECONDS
    assert hosts.alive() is None


def test_who_cannot_beat_gives_up_while_there_is_time_for_what_runs_to_end(hosts: Hosts):
    hosts.heartbeat.beat()
    hosts.alive()
    hosts.heartbeat.require()
    hosts.leases.error = AWAY
    begun = hosts.now
    while not hosts.losses:
        hosts.now += SECONDS / 6
        hosts.heartbeat.beat()
    assert hosts.now - begun + GRACE <= SECONDS
    with pytest.raises(TransientError, match="the API server is away") as caught:
        hosts.heartbeat.require()
    assert (caught.value.reason, caught.value.hint) == ("HeartbeatLost", "start it")
    hosts.now += SECONDS
    hosts.heartbeat.beat()
    assert hosts.losses == 1, "it gives up once"
    hosts.leases.error = None
    hosts.heartbeat.beat()
    hosts.heartbeat.require()


def test_nothing_begins_before_the_first_sign_of_life(hosts: Hosts):
    hosts.leases.error = AWAY
    hosts.heartbeat.beat()
    with pytest.raises(TransientError, match="cannot renew its Lease n/"):
        hosts.heartbeat.require()


def test_who_may_have_no_lease_does_without(hosts: Hosts):
    hosts.leases.error = FORBIDDEN
    hosts.heartbeat.beat()
    hosts.heartbeat.require()
    assert hosts.losses == 0


def test_the_leases_of_those_long_dead_are_taken_away(hosts: Hosts):
    for host in ("b", "c"):
        hosts.beating(host).beat()
    hosts.leases.kept[lease_name("b")]["spec"]["renewTime"] = "2026-05-01T00:00:00.000000Z"
    hosts.heartbeat.beat()
    hosts.heartbeat._forget_the_dead()
    assert set(hosts.leases.kept) == {lease_name("a"), lease_name("c")}


def test_the_first_who_knows_is_believed():
    lock = Lock(1, "u", "a", datetime(2026, 5, 9, tzinfo=UTC), "path")
    assert first_known(lambda _: None, lambda _: False, lambda _: True)(lock) is False
    assert first_known(lambda _: None)(lock) is None
