"""The training: two workers that read the graph from the service, shown while they learn.

They are an indexed Job, which every cluster can run, or a TFJob, which needs
the Kubeflow training operator. The container is the same: what starts it
tells each worker its place, and the service's variables tell it the store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import PODS, SERVICES, Resource
from provisioner.demo.example import APP
from provisioner.demo.objects import JOBS, TFJOBS, Objects, await_true
from provisioner.demo.report import DemoError, Show
from provisioner.errors import ProvisionerError
from provisioner.flyte import DataService

WORKERS = 2
LABEL = "data-service-provisioner/demo"
_LEADER_PORT = 29500
# Which worker a pod is, as the Job controller and the training operator label it.
_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
_TF_INDEX = "training.kubeflow.org/replica-index"
_POLL_SECONDS = 0.2
# A model that is no better than this above the baseline has learnt nothing from the graph.
_MARGIN = 0.1
_BAR = 24


@dataclass(frozen=True)
class Trained:
    """How good the model became.

    Attributes:
        accuracy: On nodes it had not seen.
        baseline: Of softmax regression over a node's own features.
        majority: Of always the most frequent label.
    """

    accuracy: float
    baseline: float
    majority: float


@dataclass(frozen=True)
class Job:
    """One training.

    Attributes:
        name: Of the Job and its headless Service.
        image: With the example's code.
        store: The graph store.
        steps: Batches of each worker.
        operator: Whether it is a TFJob.
    """

    name: str
    image: str
    store: DataService
    steps: int
    operator: bool = False

    @property
    def selector(self) -> str:
        """Selects all objects of the training."""
        return f"{LABEL}={self.name}"

    def service(self) -> dict[str, Any]:
        """The headless Service by which the workers find each other."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "labels": {LABEL: self.name}},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {LABEL: self.name},
                "ports": [{"name": "leader", "port": _LEADER_PORT}],
            },
        }

    def _container(self, name: str, *arguments: str) -> dict[str, Any]:
        environment = {"PYTHONPATH": APP, "OPENBLAS_NUM_THREADS": "1", **self.store.env("GRAPH")}
        return {
            "name": name,
            "image": self.image,
            "command": ["python", "-m", "gnn.train", "--steps", str(self.steps), *arguments],
            "env": [{"name": name, "value": value} for name, value in environment.items()],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        }

    def objects(self, namespace: str) -> list[tuple[Resource, dict[str, Any]]]:
        """What is created, in this order.

        Args:
            namespace: Where it runs.
        """
        if self.operator:
            return [(TFJOBS, self.tfjob())]
        return [(SERVICES, self.service()), (JOBS, self.job(namespace))]

    def tfjob(self) -> dict[str, Any]:
        """The TFJob. The operator makes a Service for each worker, and says in TF_CONFIG who is who."""
        # TF_CONFIG goes into the container of this name.
        template = {"metadata": {"labels": {LABEL: self.name}}, "spec": {"containers": [self._container("tensorflow")]}}
        worker = {"replicas": WORKERS, "restartPolicy": "Never", "template": template}
        return {
            "apiVersion": f"{TFJOBS.group}/{TFJOBS.version}",
            "kind": TFJOBS.kind,
            "metadata": {"name": self.name, "labels": {LABEL: self.name}},
            "spec": {"runPolicy": {"backoffLimit": 0}, "tfReplicaSpecs": {"Worker": worker}},
        }

    def job(self, namespace: str) -> dict[str, Any]:
        """The indexed Job.

        Args:
            namespace: Where it runs.
        """
        leader = f"{self.name}-0.{self.name}.{namespace}.svc.cluster.local:{_LEADER_PORT}"
        container = self._container("worker", "--workers", str(WORKERS), "--leader", leader)
        pod = {"restartPolicy": "Never", "subdomain": self.name, "containers": [container]}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "labels": {LABEL: self.name}},
            "spec": {
                "completionMode": "Indexed",
                "completions": WORKERS,
                "parallelism": WORKERS,
                "backoffLimit": 0,
                "template": {"metadata": {"labels": {LABEL: self.name}}, "spec": pod},
            },
        }


def run(job: Job, objects: Objects, client: ClusterClient, show: Show, seconds: float = 600.0) -> Trained:
    """Run the training, and show loss and accuracy as they come.

    Args:
        job: Which training.
        objects: Where.
        client: Reads the worker's log.
        show: Told of each measurement.
        seconds: How long it may take.

    Raises:
        DemoError: A worker failed, it took too long, or the baseline was not beaten.
    """
    for resource, manifest in job.objects(objects.namespace):
        objects.create(resource, manifest)
    deadline = time.monotonic() + seconds
    pod = _first_worker(job, objects, deadline)
    result: Mapping[str, Any] = {}
    for event in _events(client, objects, job, pod):
        _show(event, show)
        if event.get("event") == "result":
            result = event
        if time.monotonic() > deadline:
            raise DemoError(f"the training was not over after {seconds:g} s")
    await_true(lambda: _over(job, objects), max(1.0, deadline - time.monotonic()), "both workers have finished")
    if not result:
        raise DemoError(f"worker {pod} ended without a result", hint=f"its log: {_last_words(client, objects, pod)}")
    trained = Trained(result["accuracy"], result["baseline"], result["majority"])
    if trained.accuracy < trained.baseline + _MARGIN:
        raise DemoError(
            f"accuracy {trained.accuracy:.3f} does not beat {trained.baseline:.3f}, "
            "which softmax regression has without the graph"
        )
    return trained


def _first_worker(job: Job, objects: Objects, deadline: float) -> str:
    """Wait until worker 0 has a log, and give its pod's name."""
    while time.monotonic() < deadline:
        for pod in objects.listed(PODS, job.selector):
            labels = pod["metadata"].get("labels", {})
            index = labels.get(_TF_INDEX) if job.operator else labels.get(_JOB_INDEX)
            if index == "0" and pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
                return str(pod["metadata"]["name"])
        time.sleep(_POLL_SECONDS)
    raise DemoError(f"no worker of job {job.name} started in time: {_states(job, objects)}")


def _events(client: ClusterClient, objects: Objects, job: Job, pod: str) -> Iterator[Mapping[str, Any]]:
    with client.logs(objects.namespace, pod, follow=True) as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
    if _failed(job, objects):
        raise DemoError(f"the training failed: {_states(job, objects)}; {_last_words(client, objects, pod)}")


def _show(event: Mapping[str, Any], show: Show) -> None:
    if event.get("event") == "baseline":
        show.say(
            f"to beat: {event['baseline']:.3f} (softmax regression without the graph), "
            f"{event['majority']:.3f} (most frequent label)"
        )
    elif event.get("event") == "step":
        bar = "#" * round(event["accuracy"] * _BAR)
        show.say(
            f"step {event['step']:>3}/{event['steps']}  loss {event['loss']:.3f}  accuracy {event['accuracy']:.3f}  "
            f"{bar:<{_BAR}}  {event['read_mb']} MB read"
        )


def _over(job: Job, objects: Objects) -> bool:
    if _failed(job, objects):
        raise DemoError(f"the training failed: {_states(job, objects)}")
    if job.operator:
        return ended_as(objects.get(TFJOBS, job.name)) == "Succeeded"
    return int(objects.get(JOBS, job.name).get("status", {}).get("succeeded", 0)) == WORKERS


def _failed(job: Job, objects: Objects) -> bool:
    if job.operator:
        return ended_as(objects.get(TFJOBS, job.name)) == "Failed"
    return int(objects.get(JOBS, job.name).get("status", {}).get("failed", 0)) > 0


def ended_as(job: Mapping[str, Any]) -> str:
    """How a training job of the operator has ended.

    Args:
        job: The object, from the API server.

    Returns:
        `Succeeded` or `Failed`, or "" while it runs.
    """
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return ""


def _states(job: Job, objects: Objects) -> str:
    pods = objects.listed(PODS, job.selector)
    return ", ".join(f"{pod['metadata']['name']} {pod.get('status', {}).get('phase')}" for pod in pods) or "no pod"


def _last_words(client: ClusterClient, objects: Objects, pod: str) -> str:
    try:
        with client.logs(objects.namespace, pod, tail=3) as lines:
            return " | ".join(lines)
    except ProvisionerError as error:
        return f"its log cannot be read: {error.message}"


def remove(job_name: str, objects: Objects, seconds: float = 120.0) -> None:
    """Remove the training, and wait until nothing of it is left.

    Args:
        job_name: Of the training.
        objects: Where.
        seconds: How long at most.

    Raises:
        DemoError: Something is still there.
    """
    objects.delete(TFJOBS, job_name)
    objects.delete(JOBS, job_name)
    objects.delete(SERVICES, job_name)
    await_true(lambda: not objects.names(f"{LABEL}={job_name}"), seconds, f"nothing of job {job_name} is left")
