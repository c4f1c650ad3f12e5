"""A workflow that trains on a graph in a data service.

`graph_store` provides the store: a replica for each shard, running only as
long as this execution needs it. Its output, a `DataService`, tells the
training where the replicas are.
"""

from __future__ import annotations

import os

from flytekit import task, workflow

from gnn.train import Plan, train
from provisioner.flyte import DataService, DataServiceConfig, DataServiceTask
from provisioner.spec import HTTPGetAction, Port, Probe, ResourceRequirements

IMAGE = os.environ.get("GNN_IMAGE", "localhost/gnn:1")
SHARDS = 3

graph_store = DataServiceTask(
    name="gnn.graph_store",
    task_config=DataServiceConfig(
        name="graph-store",
        image=IMAGE,
        command=["python", "-m", "gnn.store"],
        env={"GRAPH_SHARDS": str(SHARDS), "PYTHONPATH": "/app", "OPENBLAS_NUM_THREADS": "1"},
        ports=[Port(name="graph", port=9000)],
        replicas=SHARDS,
        resources=ResourceRequirements(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "512Mi"}),
        readiness_probe=Probe(http_get=HTTPGetAction(port="graph", path="/ready"), period_seconds=1),
        termination_grace_period_seconds=5,
        start_deadline="5m",
    ),
)


@task(container_image=IMAGE)
def train_model(graph: DataService, steps: int) -> float:
    """Train on the replicas of `graph`; gives the accuracy on nodes not seen before."""
    return train(graph.addresses(), Plan(steps=steps)).accuracy


@workflow
def train_on_graph(steps: int = 200) -> float:
    """Bring the store up, then train on it."""
    graph = graph_store()
    return train_model(graph=graph, steps=steps)
