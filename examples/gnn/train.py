"""One training worker: samples over all replicas, averages gradients with its peers, prints JSON lines.

    python -m gnn.train --graph g-0.g.ns.svc:9000,g-1.g.ns.svc:9000 --workers 2 --leader train-0.train.ns.svc:9100

What a TFJob or a PyTorchJob says in the environment is no argument: which
worker this is, how many there are, and where the first one is. Nor is the
graph, where the container has the variables of `DataService.env("GRAPH")`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnn.allreduce import AllReduce
from gnn.client import GraphClient
from gnn.graph import Ids, Recipe, split
from gnn.place import place
from gnn.sage import (
    Adam,
    Batch,
    Parameters,
    baseline_accuracy,
    initial,
    loss_and_gradients,
    majority_accuracy,
    predict,
)


@dataclass(frozen=True)
class Plan:
    """How a worker trains.

    Attributes:
        rank: Number of this worker.
        workers: Number of workers.
        leader: `host:port` of worker 0, when there are several.
        steps: Batches of each worker.
        batch: Target nodes of a batch.
        fanouts: Neighbours sampled in the first and in the second hop.
        hidden: Width of the hidden layer.
        rate: Step size.
        measure_every: Steps between two measurements.
        patience: Seconds to wait for the store and for the peers.
    """

    rank: int = 0
    workers: int = 1
    leader: str = ""
    steps: int = 200
    batch: int = 256
    fanouts: tuple[int, int] = (10, 5)
    hidden: int = 64
    rate: float = 0.01
    measure_every: int = 10
    patience: float = 60.0


@dataclass(frozen=True)
class Result:
    """How good the model is on nodes it has not seen.

    Attributes:
        accuracy: Share of the test nodes whose label it finds.
        baseline: The same for softmax regression without the graph.
        majority: The same for always the most frequent label.
        seconds: How long the training took.
    """

    accuracy: float
    baseline: float
    majority: float
    seconds: float


Report = Callable[[dict[str, object]], None]


def print_line(event: dict[str, object]) -> None:
    """One JSON line on stdout."""
    print(json.dumps(event), flush=True)


def train(addresses: Sequence[str], plan: Plan | None = None, report: Report = print_line) -> Result:
    """Train on the graph behind `addresses`.

    Args:
        addresses: `host:port` of each replica.
        plan: How.
        report: Told about every step that is measured.

    Raises:
        StoreError: The graph cannot be read.
        OSError: The other workers cannot be reached.
    """
    plan = plan or Plan()
    graph = GraphClient(addresses, reader=plan.rank)
    recipe = graph.wait(plan.patience)
    with AllReduce(plan.rank, plan.workers, plan.leader, plan.patience) as peers:
        return _train(graph, recipe, peers, plan, report)


def _train(graph: GraphClient, recipe: Recipe, peers: AllReduce, plan: Plan, report: Report) -> Result:
    train_ids, test_ids = split(recipe)
    baseline, majority = _baselines(graph, recipe, train_ids, test_ids)
    if plan.rank == 0:
        report({"event": "baseline", "baseline": round(baseline, 4), "majority": round(majority, 4)})
    mine = train_ids[plan.rank :: plan.workers]
    check = test_ids[plan.rank :: plan.workers]
    parameters = initial(recipe.features, plan.hidden, recipe.classes, recipe.seed)
    optimiser = Adam(plan.rate)
    rng = np.random.default_rng((recipe.seed, plan.rank))
    started = time.monotonic()
    for step in range(1, plan.steps + 1):
        ids = rng.choice(mine, min(plan.batch, mine.size), replace=False)
        loss, gradients = loss_and_gradients(parameters, fetch(graph, recipe, ids, plan.fanouts, seed=step))
        optimiser.apply(parameters, _averaged(peers, gradients))
        if step % plan.measure_every == 0:
            right = measure(graph, recipe, parameters, check[:500], plan.fanouts)
            loss, right = (float(value) for value in peers.mean(np.array([loss, right])))
            event = {"event": "step", "worker": plan.rank, "step": step, "steps": plan.steps}
            figures = {"loss": round(loss, 4), "accuracy": round(right, 4), "read_mb": graph.bytes_received // 10**6}
            report({**event, **figures, "seconds": round(time.monotonic() - started, 2)})
    accuracy = peers.mean(np.array([measure(graph, recipe, parameters, check, plan.fanouts)]))
    return Result(float(accuracy[0]), baseline, majority, time.monotonic() - started)


def measure(
    graph: GraphClient, recipe: Recipe, parameters: Parameters, ids: Ids, fanouts: tuple[int, int], chunk: int = 500
) -> float:
    """Share of the nodes whose label the model finds."""
    right = 0
    for start in range(0, ids.size, chunk):
        part = ids[start : start + chunk]
        batch = fetch(graph, recipe, part, fanouts, seed=0)
        right += int((predict(parameters, batch) == batch.labels).sum())
    return right / ids.size


def fetch(graph: GraphClient, recipe: Recipe, ids: Ids, fanouts: tuple[int, int], seed: int) -> Batch:
    """A batch: the targets, a sample of their neighbours, and of theirs."""
    near = graph.sample(ids, fanouts[0], seed)
    nodes = np.concatenate((ids, near.ravel()))
    far = graph.sample(nodes, fanouts[1], seed)
    everything = graph.features(np.concatenate((nodes, far.ravel())), recipe.features)
    own = everything[: nodes.size]
    around = everything[nodes.size :].reshape(nodes.size, fanouts[1], -1).mean(axis=1)
    return Batch(own, around, graph.labels(ids))


def _baselines(graph: GraphClient, recipe: Recipe, train_ids: Ids, test_ids: Ids) -> tuple[float, float]:
    train_labels, test_labels = graph.labels(train_ids), graph.labels(test_ids)
    known = graph.features(train_ids, recipe.features), train_labels
    unseen = graph.features(test_ids, recipe.features), test_labels
    return baseline_accuracy(known, unseen, recipe.classes), majority_accuracy(train_labels, test_labels)


def _averaged(peers: AllReduce, gradients: Parameters) -> Parameters:
    flat = peers.mean(np.concatenate([gradient.ravel() for gradient in gradients.values()]))
    result, start = {}, 0
    for name, gradient in gradients.items():
        result[name] = flat[start : start + gradient.size].reshape(gradient.shape)
        start += gradient.size
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as one worker of a Job."""
    parser = argparse.ArgumentParser(description="one worker of a GraphSAGE training")
    here, graph = place(os.environ), os.environ.get("GRAPH_ADDRESSES")
    parser.add_argument(
        "--graph", default=graph, required=graph is None, help="host:port of each replica, separated by commas"
    )
    parser.add_argument("--workers", type=int, default=here.workers, help="number of workers")
    parser.add_argument("--leader", default=here.leader, help="host:port of worker 0")
    parser.add_argument("--steps", type=int, default=Plan.steps, help="batches of each worker")
    options = parser.parse_args(arguments)
    plan = Plan(rank=here.rank, workers=options.workers, leader=options.leader, steps=options.steps)
    result = train(options.graph.split(","), plan)
    if here.rank == 0:
        figures = {name: round(value, 4) for name, value in vars(result).items()}
        print_line({"event": "result", **figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
