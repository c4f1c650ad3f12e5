"""The same training, by the two workers of a TFJob, which the Kubeflow training operator runs.

Each worker gets the store as its input, and waits until it reaches every
replica. Its place among its peers is in `TF_CONFIG`, which the operator sets.
On somebody's own machine (`pyflyte run`) the task runs as one worker.
"""

from __future__ import annotations

import os

from flytekit import Resources, task
from flytekitplugins.kftensorflow import PS, Chief, TfJob, Worker

from gnn.place import place
from gnn.train import Plan, train
from gnn.workflow import IMAGE, graph_store
from provisioner.flyte import DataService, data_service, scoped_workflow


@task(
    task_config=TfJob(chief=Chief(replicas=0), ps=PS(replicas=0), worker=Worker(replicas=2)),
    container_image=IMAGE,
    environment={"PYTHONPATH": "/app", "OPENBLAS_NUM_THREADS": "1"},
    requests=Resources(cpu="100m", mem="256Mi"),
    limits=Resources(mem="1Gi"),
)
def train_model(graph: DataService, steps: int) -> float:
    """Train with the other workers on the replicas of `graph`; gives the accuracy on nodes not seen before."""
    graph.wait_until_reachable()
    here = place(os.environ)
    plan = Plan(rank=here.rank, workers=here.workers, leader=here.leader, steps=steps)
    return train(graph.addresses(), plan).accuracy


@scoped_workflow
def train_on_graph(steps: int = 200) -> float:
    """Bring the store up, train on it, and end it: after the training, or when that fails."""
    with data_service(graph_store) as graph:
        return train_model(graph=graph, steps=steps)
