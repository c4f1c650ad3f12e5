"""A namespace of its own for each test, and an API server that can be made to fail."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_proxy import ApiProxy
from prometheus_client import REGISTRY

from provisioner.cluster import ClusterCache, ClusterClient, Timing
from provisioner.cluster.api import NAMESPACES, SERVICES, STATEFULSETS, Resource
from provisioner.cluster.credentials import Credentials
from provisioner.identity import Identity, for_name
from provisioner.resources.manifests import service_manifest, stateful_set_manifest
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec, Port

PATIENCE = 90.0
QUICK = Timing(watch=6.0, slack=4.0, settle=0.5, gap=1.0, stale=12.0, first_delay=0.05, longest_delay=0.5, refused=0.5)
# No watch begins anew by itself and none is listed again, however slow the machine: what happens, a test has caused.
STEADY = replace(QUICK, watch=3600.0, gap=3600.0, stale=3600.0)


def wait_for(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last: {value!r}"
        time.sleep(0.05)


def watches() -> set[threading.Thread]:
    """The threads of all watches."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("watch-")}


def small_spec(**fields: Any) -> DataServiceSpec:
    """A small service that listens on port 9000."""
    values: dict[str, Any] = {
        "image": "localhost/busybox:sandbox",
        "image_pull_policy": "IfNotPresent",
        "command": ("sh", "-c", "echo serving; exec nc -ll -p 9000 -e cat"),
        "ports": (Port(name="tcp", port=9000),),
        "replicas": 2,
        "termination_grace_period_seconds": 0,
    }
    return DataServiceSpec(**(values | fields))


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait until something holds, and return it."""
    return wait_for


@pytest.fixture
def spec() -> Callable[..., DataServiceSpec]:
    """A small service that listens on port 9000, with fields of the test's own."""
    return small_spec


class Lab:
    """Makes and changes objects as the engine would, in one namespace."""

    def __init__(self, settings: Settings, namespace: str) -> None:
        self.settings = settings
        self.namespace = namespace
        self.client = ClusterClient(settings)
        self._connection = Credentials(settings).current()

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Mapping[str, Any]:
        answer = self._connection.pool.request(
            method,
            self._connection.host + path,
            body=json.dumps(body) if body is not None else None,
            headers={**self._connection.headers(), "Content-Type": content},
        )
        document: Mapping[str, Any] = answer.json()
        assert answer.status < 300, document
        return document

    def identity(self, name: str = "store") -> Identity:
        return for_name("tests", "e2e", namespace=self.namespace, name=name)

    def put(self, resource: Resource, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make one object, or change it."""
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        body = {"apiVersion": version, "kind": resource.kind, **manifest}
        path = resource.path(self.namespace, manifest["metadata"]["name"]) + "?fieldManager=tests&force=true"
        return self.call("PATCH", path, body, "application/apply-patch+yaml")

    def apply(self, identity: Identity, wanted: DataServiceSpec) -> None:
        """Make a service, or bring it to a specification."""
        self.put(SERVICES, service_manifest(identity, wanted))
        self.put(STATEFULSETS, stateful_set_manifest(identity, wanted))

    def delete(self, resource: Resource, name: str) -> None:
        self.call("DELETE", resource.path(self.namespace, name))


@pytest.fixture
def lab(settings: Settings) -> Iterator[Lab]:
    """A namespace of its own, deleted afterwards."""
    made = Lab(settings, f"cluster-{secrets.token_hex(4)}")
    made.put(NAMESPACES, {"metadata": {"name": made.namespace}})
    yield made
    made.call("DELETE", NAMESPACES.path(None, made.namespace))


@pytest.fixture
def watching() -> Callable[[], set[threading.Thread]]:
    """The threads of all watches."""
    return watches


@pytest.fixture
def watch() -> Iterator[Callable[..., ClusterCache]]:
    """Start a cache that notices within seconds, and end it with the test."""
    started: list[ClusterCache] = []
    before = watches()

    def start(client: ClusterClient, timing: Timing = QUICK, **options: Any) -> ClusterCache:
        cache = ClusterCache(client, timing=timing, **options)
        started.append(cache)
        cache.start()
        return cache

    yield start
    for cache in started:
        cache.stop()
    # One that ends later would still count in the metrics that the next test reads.
    wait_for(lambda: watches() <= before, "no watch is left")


@pytest.fixture
def watch_steadily(watch: Callable[..., ClusterCache]) -> Callable[[ClusterClient], ClusterCache]:
    """Start a cache, and wait until each of its watches is open: from then on it asks for nothing more."""

    def opened() -> float:
        metrics = [metric for metric in REGISTRY.collect() if metric.name == "provisioner_cluster_requests"]
        samples = [sample for metric in metrics for sample in metric.samples if sample.name.endswith("_total")]
        return sum(
            sample.value for sample in samples if (sample.labels["verb"], sample.labels["code"]) == ("watch", "200")
        )

    def start(client: ClusterClient) -> ClusterCache:
        others, before = watches(), opened()
        cache = watch(client, timing=STEADY)
        wait_for(lambda: opened() - before == len(watches() - others), "every watch open")
        return cache

    return start


@pytest.fixture
def cache(lab: Lab, watch: Callable[..., ClusterCache]) -> ClusterCache:
    """A cache in sync with the real API server."""
    made = watch(lab.client)
    assert made.wait_synced(PATIENCE), made.problems()
    return made


@pytest.fixture
def proxy(settings: Settings, tmp_path: Path) -> Iterator[ApiProxy]:
    """The API server, behind a proxy of this test."""
    made = ApiProxy(settings, tmp_path)
    yield made
    made.close()
