"""Beside real training jobs: the Kubeflow training operator runs what reads from a service."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from propeller import Propeller

from provisioner.cluster.api import PODS, Resource
from provisioner.demo import example
from provisioner.demo.objects import Objects, await_true
from provisioner.demo.training import ended_as
from provisioner.flyte import DataService
from provisioner.sandbox.images.python import Addition, build_python_image

pytestmark = pytest.mark.training
PATIENCE = 240.0
BUSYBOX = "localhost/busybox:sandbox"
IMAGE = "localhost/gnn-task:1"
PYTORCHJOBS = Resource("PyTorchJob", "kubeflow.org", "v1", "pytorchjobs")
MPIJOBS = Resource("MPIJob", "kubeflow.org", "v1", "mpijobs")
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


def test_an_mpijob_s_launcher_gets_the_service_as_environment(service: DataService, run) -> None:
    launcher = replicas(1, container("mpi", service, f"test -s /etc/mpi/hostfile || exit 1; {REACH}"))
    workers = replicas(2, {"name": "mpi", "image": BUSYBOX, "command": ["/bin/busybox", "sleep", "3600"]})
    spec = {
        "slotsPerWorker": 1,
        "runPolicy": {"cleanPodPolicy": "All"},
        "mpiReplicaSpecs": {"Launcher": launcher, "Worker": workers},
    }
    manifest = {"metadata": {"name": f"mpi-{service.name}"[:40].rstrip("-")}, "spec": spec}
    assert run(MPIJOBS, manifest) == "Succeeded"


@pytest.fixture
def image(sandbox) -> str:
    """The example's code with what a Flyte task needs to run it: flytekit, and this package."""
    root = example.find().parent
    add = [Addition(root / "examples" / "gnn", "/app/gnn"), Addition(root / "provisioner", "/app/provisioner")]
    packages = ["numpy", "flytekit", "flytekitplugins-kftensorflow", *OUR_DEPENDENCIES]
    sandbox.load_image(build_python_image(packages, name=IMAGE, add=add))
    return IMAGE


OUR_DEPENDENCIES = ("pydantic-settings", "structlog", "msgpack", "cryptography")


def test_the_example_trains_as_a_tfjob_that_takes_the_service(
    image: str, monkeypatch, server, objects: Objects, execution, tmp_path: Path, left
) -> None:
    monkeypatch.setenv("GNN_IMAGE", image)
    monkeypatch.setattr(sys, "path", [str(example.find()), *sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "gnn"]:
        monkeypatch.delitem(sys.modules, name)
    flow = importlib.import_module("gnn.workflow_tfjob").train_on_graph
    propeller = Propeller(server.address, objects, execution(), tmp_path)
    accuracy = propeller.run(flow, steps=60)["o0"]
    # Softmax regression without the graph comes to 0.52.
    assert accuracy > 0.6
    await_true(lambda: not objects.listed(PODS, "training.kubeflow.org/job-role"), PATIENCE, "the workers are gone")
    # The workflow has ended its service itself.
    (meta,) = propeller.metas.values()
    assert left(meta) == []
