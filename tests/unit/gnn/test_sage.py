"""The model: its gradients against differences, and its workers against each other."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from gnn.allreduce import AllReduce
from gnn.sage import Batch, baseline_accuracy, initial, loss_and_gradients, majority_accuracy
from ports import held_ports


@pytest.mark.parametrize("name", ["own1", "around1", "bias1", "own2", "around2", "bias2"])
def test_each_gradient_is_the_slope_of_the_loss(name: str) -> None:
    rng = np.random.default_rng(1)
    batch = Batch(
        own=rng.standard_normal((4 * 3, 5)),
        around=rng.standard_normal((4 * 3, 5)),
        labels=rng.integers(3, size=4).astype(np.int32),
    )
    parameters = {key: value.astype(np.float64) for key, value in initial(5, 6, 3, seed=2).items()}
    parameters["bias1"] += 0.05  # away from the kink of the rectifier
    _, gradients = loss_and_gradients(parameters, batch)
    step = 1e-6
    for index in np.ndindex(parameters[name].shape):
        losses = []
        for change in (step, -step):
            moved = {**parameters, name: parameters[name].copy()}
            moved[name][index] += change
            losses.append(loss_and_gradients(moved, batch)[0])
        assert gradients[name][index] == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-5)


def test_baselines() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(2, size=400).astype(np.int32)
    features = (labels[:, None] * 2.0 + rng.standard_normal((400, 3)) * 0.1).astype(np.float32)
    assert baseline_accuracy((features, labels), (features, labels), 2) > 0.99
    assert majority_accuracy(np.array([1, 1, 0], np.int32), np.array([1, 0, 1, 1], np.int32)) == 0.75


def run(size: int, work) -> list:
    with held_ports(1) as (port,):
        return run_at(f"127.0.0.1:{port}", size, work)


def run_at(address: str, size: int, work) -> list:
    results: list = [None] * size

    def worker(rank: int) -> None:
        try:
            with AllReduce(rank, size, address, wait=60) as peers:
                results[rank] = work(rank, peers)
        except OSError as error:
            results[rank] = error

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_worker_gets_the_mean_each_time(size: int) -> None:
    def work(rank: int, peers: AllReduce) -> list[np.ndarray]:
        return [peers.mean(np.full((2, 3), rank + turn, np.float32)) for turn in range(3)]

    for means in run(size, work):
        for turn, mean in enumerate(means):
            assert np.array_equal(mean, np.full((2, 3), (size - 1) / 2 + turn, np.float32))


def test_a_worker_that_goes_is_noticed_by_the_others() -> None:
    def work(rank: int, peers: AllReduce) -> object:
        return peers.mean(np.zeros(4, np.float32)) if rank == 0 else None

    results = run(2, work)
    assert isinstance(results[0], ConnectionError)


def test_shapes_that_differ_are_refused() -> None:
    results = run(2, lambda rank, peers: peers.mean(np.zeros(4 + rank, np.float32)))
    assert any(isinstance(result, ConnectionError) for result in results)
