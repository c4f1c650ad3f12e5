"""A graph to learn from: the same for the same numbers, on every machine.

Each node belongs to one of a few communities. Its features are a faint trace
of its community under much noise; its neighbours mostly belong to the same
one. So a model that looks at features alone stays weak, and one that averages
over neighbourhoods does not: what graph neural networks are for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Recipe:
    """What the generator is asked for.

    Attributes:
        nodes: Number of nodes.
        edges: Number of undirected edges.
        features: Features of each node.
        classes: Number of communities, which are the labels.
        homophily: Share of the edges that stay inside a community on purpose.
        signal: Length of a community's trace in the features; the noise has 1 per feature.
        seed: Another seed, another graph.
    """

    nodes: int = 50_000
    edges: int = 500_000
    features: int = 32
    classes: int = 10
    homophily: float = 0.5
    signal: float = 1.6
    seed: int = 7

    def __post_init__(self) -> None:
        if self.nodes < 2 * self.classes or self.edges < 1 or self.classes < 2 or self.features < 1:
            raise ValueError(f"no graph can be made of {self}")


@dataclass(frozen=True)
class Graph:
    """A whole graph in compressed sparse rows.

    Attributes:
        offsets: Where the neighbours of node i begin in `neighbors`; one more than nodes.
        neighbors: Neighbours of all nodes, each edge once from either end.
        features: One row per node.
        labels: Community of each node.
    """

    offsets: npt.NDArray[np.int64]
    neighbors: Ids
    features: Floats
    labels: Ids


def generate(recipe: Recipe) -> Graph:
    """Make the graph of a recipe."""
    rng = np.random.default_rng(recipe.seed)
    labels = rng.integers(recipe.classes, size=recipe.nodes, dtype=np.int32)
    labels[: recipe.classes] = np.arange(recipe.classes)  # no community is empty
    source = rng.integers(recipe.nodes, size=recipe.edges, dtype=np.int32)
    anywhere = rng.integers(recipe.nodes, size=recipe.edges, dtype=np.int32)
    target = np.where(
        rng.random(recipe.edges) < recipe.homophily, _same_community(labels, source, recipe.classes, rng), anywhere
    )
    target = np.where(target == source, (target + 1) % recipe.nodes, target).astype(np.int32)
    ends = np.concatenate((source, target))
    order = np.argsort(ends, kind="stable")
    neighbors = np.concatenate((target, source))[order]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=recipe.nodes)))).astype(np.int64)
    traces = rng.standard_normal((recipe.classes, recipe.features), dtype=np.float32)
    traces *= np.float32(recipe.signal) / np.linalg.norm(traces, axis=1, keepdims=True)
    features = traces[labels] + rng.standard_normal((recipe.nodes, recipe.features), dtype=np.float32)
    return Graph(offsets, neighbors, features, labels)


def _same_community(labels: Ids, source: Ids, classes: int, rng: np.random.Generator) -> Ids:
    members = np.argsort(labels, kind="stable").astype(np.int32)
    sizes = np.bincount(labels, minlength=classes)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    community = labels[source]
    return members[starts[community] + (rng.random(source.size) * sizes[community]).astype(np.int64)]


def split(recipe: Recipe, train: float = 0.1, test: float = 0.1) -> tuple[Ids, Ids]:
    """Nodes to train on and nodes to test with; no node is in both.

    Args:
        recipe: Whose nodes.
        train: Share to train on.
        test: Share to test with.
    """
    order = np.random.default_rng(recipe.seed + 1).permutation(recipe.nodes).astype(np.int32)
    first, second = int(recipe.nodes * train), int(recipe.nodes * test)
    return order[:first], order[first : first + second]


class Shard:
    """The part of a graph that one replica serves: the nodes whose id is `index` modulo `count`.

    Args:
        graph: The whole graph.
        index: Which part.
        count: Of how many.
    """

    def __init__(self, graph: Graph, index: int, count: int) -> None:
        if not 0 <= index < count:
            raise ValueError(f"shard {index} of {count} does not exist")
        self.index, self.count = index, count
        self.nodes = np.arange(index, graph.labels.size, count, dtype=np.int32)
        degrees = np.diff(graph.offsets)[self.nodes]
        self._offsets = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
        starts = np.repeat(graph.offsets[self.nodes] - self._offsets[:-1], degrees)
        self._neighbors = graph.neighbors[np.arange(self._offsets[-1]) + starts]
        self._features = graph.features[self.nodes]
        self._labels = graph.labels[self.nodes]

    def _rows(self, ids: Ids) -> Ids:
        rows = ids // self.count
        if np.any(ids % self.count != self.index) or np.any((rows < 0) | (rows >= self.nodes.size)):
            raise ValueError(f"some of the {ids.size} nodes are not in shard {self.index} of {self.count}")
        return rows

    def sample(self, ids: Ids, fanout: int, seed: int) -> Ids:
        """Some neighbours of each node, drawn with replacement; a node without any is its own.

        Args:
            ids: Nodes of this shard.
            fanout: How many of each.
            seed: The same seed draws the same.

        Returns:
            One row of `fanout` nodes for each id.

        Raises:
            ValueError: A node is not in this shard.
        """
        rows = self._rows(ids)
        start, degree = self._offsets[rows], self._offsets[rows + 1] - self._offsets[rows]
        draws = np.random.default_rng((seed, self.index)).random((ids.size, fanout))
        chosen = start[:, None] + (draws * degree[:, None]).astype(np.int64)
        alone = degree == 0
        chosen[alone] = 0
        result = self._neighbors[chosen] if self._neighbors.size else np.zeros(chosen.shape, np.int32)
        result[alone] = ids[alone, None]
        return result

    def features(self, ids: Ids) -> Floats:
        """One row of features for each node."""
        return self._features[self._rows(ids)]

    def labels(self, ids: Ids) -> Ids:
        """The label of each node."""
        return self._labels[self._rows(ids)]
