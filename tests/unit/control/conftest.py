"""Requests and cluster views for tests of control."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from provisioner.cluster.objects import Pod, Service, Snapshot, StatefulSet
from provisioner.control.request import ServiceRequest
from provisioner.identity import for_name
from provisioner.spec import parse_spec

NOW = 1_000_000.0


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
