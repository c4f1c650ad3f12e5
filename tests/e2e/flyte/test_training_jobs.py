"""Beside real training jobs: the Kubeflow training operator runs what reads from a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from provisioner.cluster.api import Resource
from provisioner.demo.objects import Objects, await_true
from provisioner.demo.training import ended_as
from provisioner.flyte import DataService

pytestmark = pytest.mark.training
PATIENCE = 240.0
BUSYBOX = "localhost/busybox:sandbox"
PYTORCHJOBS = Resource("PyTorchJob", "kubeflow.org", "v1", "pytorchjobs")
REACH = (
    "test $GRAPH_REPLICAS = 2 || exit 1; IFS=,; "
    "for a in $GRAPH_ADDRESSES; do /bin/busybox nc -w 5 ${a%:*} ${a##*:} </dev/null || exit 1; done"
)


@pytest.fixture(scope="module", autouse=True)
def operator(sandbox) -> None:
    sandbox.up(additions=["training-operator"])


@pytest.fixture
def service(caller, template, execution, left) -> Iterator[DataService]:
    meta = caller.create(template(), execution())
    yield caller.service(meta, PATIENCE)
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


@pytest.fixture
def run(objects: Objects) -> Iterator[Callable[[Resource, dict[str, Any]], str]]:
    """Run a training job to its end; says how it ended."""
    made: list[tuple[Resource, str]] = []

    def run(kind: Resource, manifest: dict[str, Any]) -> str:
        name = manifest["metadata"]["name"]
        manifest = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, **manifest}
        objects.create(kind, manifest)
        made.append((kind, name))
        await_true(lambda: ended_as(objects.get(kind, name)) != "", PATIENCE, f"{kind.kind} {name} has ended")
        return ended_as(objects.get(kind, name))

    yield run
    for kind, name in made:
        objects.delete(kind, name)


def container(name: str, service: DataService, script: str) -> dict[str, Any]:
    env = [{"name": key, "value": value} for key, value in service.env("GRAPH").items()]
    return {"name": name, "image": BUSYBOX, "command": ["/bin/busybox", "sh", "-c", script], "env": env}


def replicas(count: int, container: dict[str, Any]) -> dict[str, Any]:
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}


def test_a_pytorchjob_gets_the_service_as_environment(service: DataService, run) -> None:
    # The operator's own variables are there beside ours.
    script = f"test $WORLD_SIZE = 2 || exit 1; {REACH}"
    ours = container("pytorch", service, script)
    specs = {"Master": replicas(1, ours), "Worker": replicas(1, ours)}
    manifest = {"metadata": {"name": f"pt-{service.name}"[:40].rstrip("-")}, "spec": {"pytorchReplicaSpecs": specs}}
    assert run(PYTORCHJOBS, manifest) == "Succeeded"
