"""The training operator beside a sandbox: it runs jobs, is repaired, and goes when it is not wanted."""

from __future__ import annotations

import os
import signal

import pytest

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import Resource
from provisioner.demo.objects import Objects, await_true
from provisioner.settings import Settings

pytestmark = pytest.mark.training
NAME = "training-operator"
TFJOBS = Resource("TFJob", "kubeflow.org", "v1", "tfjobs")
PATIENCE = 120.0


def ended_as(job) -> str:
    ends = ("Succeeded", "Failed")
    conditions = job.get("status", {}).get("conditions") or []
    return next((item["type"] for item in conditions if item["type"] in ends and item["status"] == "True"), "")


@pytest.fixture
def objects(sandbox) -> Objects:
    settings = Settings(kubeconfig=sandbox.kubeconfig, context=sandbox.context)
    return Objects(ClusterClient(settings), "default")


def process(status):
    return {item.name: item for item in status.processes}.get(NAME)


def test_it_runs_a_tfjob_whose_workers_know_each_other(sandbox, objects: Objects) -> None:
    status = sandbox.up(additions=[NAME])
    assert process(status).state == "ready"
    peers = ",".join(f'"two-worker-{index}.default.svc:2222"' for index in range(2))
    script = f"""echo "$TF_CONFIG" | grep -qF '"worker":[{peers}]'"""
    container = {"name": "tensorflow", "image": "localhost/busybox:sandbox", "command": ["sh", "-c", script]}
    worker = {"replicas": 2, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "two"},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }
    objects.create(TFJOBS, manifest)
    try:
        await_true(lambda: ended_as(objects.get(TFJOBS, "two")) != "", PATIENCE, "the TFJob has ended")
        assert ended_as(objects.get(TFJOBS, "two")) == "Succeeded"
    finally:
        objects.delete(TFJOBS, "two")


def test_it_is_repaired_kept_and_ended(sandbox) -> None:
    first = process(sandbox.up(additions=[NAME]))
    assert process(sandbox.up()).pid == first.pid
    os.kill(first.pid, signal.SIGKILL)
    await_true(lambda: process(sandbox.status()).state == "dead", PATIENCE, "it is dead")
    assert not sandbox.status().ready
    second = process(sandbox.up())
    assert second.state == "ready"
    assert second.pid != first.pid
    assert process(sandbox.up(without=[NAME])) is None
    assert sandbox.status().ready
