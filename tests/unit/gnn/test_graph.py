"""The generated graph: always the same, whole, and split without a rest."""

from __future__ import annotations

import numpy as np
import pytest
from gnn.graph import Graph, Recipe, Shard, generate, split
from hypothesis import given
from hypothesis import strategies as st

SMALL = Recipe(nodes=500, edges=3_000, features=8, classes=5)
GRAPH = generate(SMALL)


def edges(graph: Graph) -> set[tuple[int, int]]:
    source = np.repeat(np.arange(graph.labels.size), np.diff(graph.offsets))
    return set(zip(source.tolist(), graph.neighbors.tolist(), strict=True))


def test_the_same_recipe_is_the_same_graph_and_another_seed_is_not() -> None:
    again, other = generate(SMALL), generate(Recipe(nodes=500, edges=3_000, features=8, classes=5, seed=8))
    for name in ("offsets", "neighbors", "features", "labels"):
        assert np.array_equal(getattr(GRAPH, name), getattr(again, name))
    assert not np.array_equal(GRAPH.neighbors, other.neighbors)


def test_it_has_the_edges_asked_for_in_both_directions_and_no_loop() -> None:
    assert GRAPH.neighbors.size == 2 * SMALL.edges
    found = edges(GRAPH)
    assert all((target, source) in found for source, target in found)
    assert all(source != target for source, target in found)


def test_neighbours_mostly_share_the_label() -> None:
    source = np.repeat(np.arange(SMALL.nodes), np.diff(GRAPH.offsets))
    same = (GRAPH.labels[source] == GRAPH.labels[GRAPH.neighbors]).mean()
    assert same > 2 / SMALL.classes


def test_train_and_test_nodes_are_disjoint() -> None:
    train, test = split(SMALL)
    assert train.size == test.size == 50
    assert not set(train.tolist()) & set(test.tolist())


@pytest.mark.parametrize("count", [1, 3, 7])
def test_the_shards_together_are_the_graph(count: int) -> None:
    shards = [Shard(GRAPH, index, count) for index in range(count)]
    nodes = np.sort(np.concatenate([shard.nodes for shard in shards]))
    assert np.array_equal(nodes, np.arange(SMALL.nodes))
    for shard in shards:
        assert np.array_equal(shard.features(shard.nodes), GRAPH.features[shard.nodes])
        assert np.array_equal(shard.labels(shard.nodes), GRAPH.labels[shard.nodes])


@given(seed=st.integers(0, 2**31), fanout=st.integers(1, 20), count=st.integers(1, 5))
def test_samples_are_neighbours_and_repeat_with_their_seed(seed: int, fanout: int, count: int) -> None:
    shard = Shard(GRAPH, 0, count)
    ids = shard.nodes[:20]
    drawn = shard.sample(ids, fanout, seed)
    assert drawn.shape == (ids.size, fanout)
    assert np.array_equal(drawn, shard.sample(ids, fanout, seed))
    for node, row in zip(ids, drawn, strict=True):
        around = GRAPH.neighbors[GRAPH.offsets[node] : GRAPH.offsets[node + 1]]
        assert set(row.tolist()) <= (set(around.tolist()) or {int(node)})


def test_a_node_without_neighbours_is_its_own() -> None:
    lonely = generate(Recipe(nodes=200, edges=1, features=2, classes=2))
    shard = Shard(lonely, 0, 1)
    alone = np.flatnonzero(np.diff(lonely.offsets) == 0).astype(np.int32)
    assert np.array_equal(shard.sample(alone, 3, 0), np.repeat(alone[:, None], 3, axis=1))


@pytest.mark.parametrize("ids", [[1], [3 * 500], [-3]])
def test_a_node_of_another_shard_is_refused(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="not in shard 0 of 3"):
        Shard(GRAPH, 0, 3).features(np.array(ids, np.int32))


def test_a_recipe_that_makes_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="no graph"):
        Recipe(nodes=3, classes=10)
    with pytest.raises(ValueError, match="shard 3 of 3"):
        Shard(GRAPH, 3, 3)
