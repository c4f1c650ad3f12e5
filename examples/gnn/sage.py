"""GraphSAGE (mean aggregator, two layers) in numpy, gradients written out by hand.

Hamilton, Ying, Leskovec: Inductive Representation Learning on Large Graphs
(2017), algorithm 2. Also the baseline that has no graph: softmax regression
over a node's own features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnn.graph import Floats, Ids

Parameters = dict[str, np.ndarray]


@dataclass(frozen=True)
class Batch:
    """Target nodes with a sampled neighbourhood of two hops.

    Attributes:
        own: Features of the targets and then of their neighbours: B * (1 + K1) rows.
        around: Mean features of the neighbours of each row of `own`.
        labels: Label of each of the B targets.
    """

    own: Floats
    around: Floats
    labels: Ids


def initial(features: int, hidden: int, classes: int, seed: int) -> Parameters:
    """Parameters to begin with (Glorot); the same for the same seed, so that all workers begin alike."""
    rng = np.random.default_rng(seed)

    def weights(rows: int, columns: int) -> Floats:
        scale = np.sqrt(6.0 / (rows + columns))
        return rng.uniform(-scale, scale, (rows, columns)).astype(np.float32)

    return {
        "own1": weights(features, hidden),
        "around1": weights(features, hidden),
        "bias1": np.zeros(hidden, np.float32),
        "own2": weights(hidden, classes),
        "around2": weights(hidden, classes),
        "bias2": np.zeros(classes, np.float32),
    }


def _forward(parameters: Parameters, batch: Batch) -> tuple[np.ndarray, ...]:
    targets = batch.labels.size
    hidden = batch.own @ parameters["own1"] + batch.around @ parameters["around1"] + parameters["bias1"]
    active = np.maximum(hidden, 0)
    near = active[targets:].reshape(targets, -1, active.shape[1]).mean(axis=1)
    logits = active[:targets] @ parameters["own2"] + near @ parameters["around2"] + parameters["bias2"]
    return logits, active, near


def predict(parameters: Parameters, batch: Batch) -> Ids:
    """The most likely label of each target."""
    return _forward(parameters, batch)[0].argmax(axis=1).astype(np.int32)


def loss_and_gradients(parameters: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """Mean cross-entropy of the targets, and its derivative by each parameter."""
    targets = batch.labels.size
    logits, active, near = _forward(parameters, batch)
    loss, down = _cross_entropy(logits, batch.labels)
    fanout = active.shape[0] // targets - 1
    down_active = np.empty_like(active)
    down_active[:targets] = down @ parameters["own2"].T
    down_active[targets:] = np.repeat(down @ parameters["around2"].T / fanout, fanout, axis=0)
    down_hidden = down_active * (active > 0)
    return loss, {
        "own1": batch.own.T @ down_hidden,
        "around1": batch.around.T @ down_hidden,
        "bias1": down_hidden.sum(axis=0),
        "own2": active[:targets].T @ down,
        "around2": near.T @ down,
        "bias2": down.sum(axis=0),
    }


def _cross_entropy(logits: np.ndarray, labels: Ids) -> tuple[float, np.ndarray]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    chances = np.exp(shifted)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(labels.size)
    loss = float(-np.log(chances[rows, labels] + 1e-12).mean())
    chances[rows, labels] -= 1
    return loss, chances / labels.size


class Adam:
    """Kingma and Ba's optimiser (2015, algorithm 1).

    Args:
        rate: Step size.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._step = 0
        self._first: Parameters = {}
        self._second: Parameters = {}

    def apply(self, parameters: Parameters, gradients: Parameters) -> None:
        """Take one step; changes `parameters`."""
        self._step += 1
        for name, gradient in gradients.items():
            first = self._first[name] = 0.9 * self._first.get(name, 0.0) + 0.1 * gradient
            second = self._second[name] = 0.999 * self._second.get(name, 0.0) + 0.001 * gradient**2
            unbiased = first / (1 - 0.9**self._step), second / (1 - 0.999**self._step)
            parameters[name] = (parameters[name] - self._rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)).astype(
                parameters[name].dtype
            )


def baseline_accuracy(train: tuple[Floats, Ids], test: tuple[Floats, Ids], classes: int) -> float:
    """Accuracy of softmax regression over a node's own features, without the graph.

    Args:
        train: Features and labels to fit.
        test: Features and labels to measure with.
        classes: Number of labels.
    """
    features, labels = train
    weights: Parameters = {
        "weights": np.zeros((features.shape[1], classes), np.float32),
        "bias": np.zeros(classes, np.float32),
    }
    optimiser = Adam(0.05)
    for _ in range(200):
        _, down = _cross_entropy(features @ weights["weights"] + weights["bias"], labels)
        optimiser.apply(weights, {"weights": features.T @ down, "bias": down.sum(axis=0)})
    guess = (test[0] @ weights["weights"] + weights["bias"]).argmax(axis=1)
    return float((guess == test[1]).mean())


def majority_accuracy(train_labels: Ids, test_labels: Ids) -> float:
    """Accuracy of always giving the most frequent label."""
    return float((test_labels == np.bincount(train_labels).argmax()).mean())
