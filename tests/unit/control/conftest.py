"""Requests and cluster views for tests of control."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import pytest

from provisioner.cluster.objects import Pod, Service, Snapshot, StatefulSet
from provisioner.control.controller import Controller
from provisioner.control.last_words import LastWords
from provisioner.control.queue import Backoff, Begun, Done, KeyedQueue, Kind, Lane, Operation, Outcome
from provisioner.control.replica_logs import ReplicaLogs
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.control.usage import Hold
from provisioner.control.workers import Workers
from provisioner.engine import Cancellation
from provisioner.identity import Identity, User, for_name
from provisioner.settings import Settings
from provisioner.spec import parse_spec

NOW = 1_000_000.0


class Cache:
    """What the cluster shows, as the test says."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.shown = snapshot
        self.stack: str | None = None

    def snapshot(self, identity: object) -> Snapshot:
        return self.shown

    def statefulsets(self) -> list[StatefulSet]:
        return [self.shown.statefulset] if self.shown.statefulset else []

    def stack_of(self, namespace: str, service: str) -> str | None:
        return self.stack

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def synced(self) -> bool:
        return True


class FakeUsage:
    """Leases as a set; what the API server would keep."""

    def __init__(self) -> None:
        self.holders: set[str] = set()
        self.closing = False
        self.error: Exception | None = None
        self.alone = True

    def take(self, identity: Identity, user: User) -> Hold:
        if self.error is not None:
            raise self.error
        self.holders.add(user.holder)
        return Hold.CLOSING if self.closing else Hold.HELD

    def give_back(self, identity: Identity, user: User, *, whole_execution: bool = False) -> bool:
        self.holders.discard(user.holder)
        return self.alone


class Harness:
    def __init__(self, snapshot: Snapshot, settings: Settings | None = None) -> None:
        self.now = NOW
        self.cache = Cache(snapshot)
        self.runs: list[Kind] = []
        self.repairs: list[bool] = []
        self.behave: Callable[[Operation, Cancellation], Outcome] = lambda operation, cancellation: Done()
        self.begin: Callable[[Operation], Outcome] = lambda operation: Begun()
        self.recorded: dict[str, ServiceRequest] = {}
        self.usage = FakeUsage()
        self.left: list[str] = []
        self.made: list[str] = []
        self.looked: Mapping[str, str] = {}
        self.workers = Workers(2, self.run, KeyedQueue(Backoff(first=0.01, cap=0.02)))
        self.controller = Controller(
            self.cache,
            self.workers,
            LastWords(lambda ref: ""),
            self.recorded.get,
            ReplicaLogs(None, self.cache.snapshot),
            self.usage,
            lambda identity: list(self.left),
            self.find_made,
            settings or Settings(),
            clock=lambda: self.now,
        )

    def find_made(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        self.looked = labels
        return self.made

    def run(self, operation: Operation, cancellation: Cancellation) -> Outcome:
        if operation.lane is Lane.BEGIN:
            return self.begin(operation)
        self.runs.append(operation.intent.kind)
        self.repairs.append(operation.intent.repair)
        return self.behave(operation, cancellation)

    def until(self, request: ServiceRequest, phase: Phase) -> Status:
        deadline = time.monotonic() + 20
        while (status := self.controller.observe(request)).phase is not phase:
            assert time.monotonic() < deadline, f"still {status}"
            time.sleep(0.005)
        return status


@pytest.fixture
def make_harness() -> type[Harness]:
    return Harness


@pytest.fixture
def harness(empty_snapshot: Snapshot) -> Iterator[Harness]:
    made = Harness(empty_snapshot)
    made.controller.start()
    yield made
    assert made.controller.stop(60)


@pytest.fixture
def make_request() -> Callable[..., ServiceRequest]:
    def make(*, replicas: int = 2, owner: str = "exec", accepted_at: float = NOW, **spec: object) -> ServiceRequest:
        document = {"image": "a:1", "ports": [{"name": "main", "port": 9000}], "replicas": replicas, **spec}
        return ServiceRequest(
            for_name("p", "d", namespace="n", name="graph", owner=owner), parse_spec(document), accepted_at
        )

    return make


@pytest.fixture
def make_snapshot() -> Callable[..., Snapshot]:
    """A healthy service, as the watch shows it; `ready` says how many of its pods are."""

    def make(request: ServiceRequest, *, ready: int | None = None, fresh: bool = True) -> Snapshot:
        wanted = request.spec.replicas
        ready = wanted if ready is None else ready
        created = datetime.fromtimestamp(NOW, UTC)
        stack, place = request.stack, {"namespace": "n", "created": created}
        return Snapshot(
            fresh=fresh,
            stale_reason="" if fresh else "no word about pods for 60 s",
            age=0.0 if fresh else 60.0,
            statefulset=StatefulSet(
                name="graph",
                stack=stack,
                digest=request.spec.digest(),
                generation=1,
                observed_generation=1,
                replicas=wanted,
                current_replicas=wanted,
                ready_replicas=ready,
                updated_replicas=wanted,
                current_revision="r1",
                update_revision="r1",
                **place,
            ),
            service=Service(name="graph", stack=stack, **place),
            pods=tuple(
                Pod(name=f"graph-{index}", stack=stack, revision="r1", phase="Running", ready=index < ready, **place)
                for index in range(wanted)
            ),
            claims=(),
            events=(),
            namespace_deleted=None,
        )

    return make


@pytest.fixture
def empty_snapshot() -> Snapshot:
    return Snapshot(
        fresh=True,
        stale_reason="",
        age=0.0,
        statefulset=None,
        service=None,
        pods=(),
        claims=(),
        events=(),
        namespace_deleted=None,
    )
