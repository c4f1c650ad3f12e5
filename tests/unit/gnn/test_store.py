"""The store over real sockets: what it answers, what it refuses, and a training on it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from gnn.client import GraphClient, StoreError
from gnn.graph import Recipe, generate
from gnn.store import MAX_IDS, StoreServer, recipe_from
from gnn.train import Plan, train

RECIPE = Recipe(nodes=2_000, edges=20_000, features=8, classes=4)
GRAPH = generate(RECIPE)


class Store:
    """Some replicas in this process."""

    def __init__(self, replicas: int, shards: int) -> None:
        self.servers = [StoreServer(("127.0.0.1", 0), RECIPE) for _ in range(replicas)]
        for replica, server in enumerate(self.servers):
            server.load(replica % shards, shards)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        self.addresses = [f"127.0.0.1:{server.server_port}" for server in self.servers]

    def end(self, replica: int) -> None:
        self.servers[replica].shutdown()
        self.servers[replica].server_close()


@pytest.fixture
def store() -> Iterator[Store]:
    running = Store(replicas=3, shards=3)
    yield running
    for replica in range(3):
        running.end(replica)


def ask(address: str, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_it_is_ready_only_when_its_shard_is_in_memory() -> None:
    server = StoreServer(("127.0.0.1", 0), RECIPE)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
    address = f"127.0.0.1:{server.server_port}"
    try:
        assert ask(address, "GET", "/ready")[0] == 503
        assert ask(address, "GET", "/info")[0] == 503
        assert ask(address, "POST", "/labels", b"\0\0\0\0")[0] == 503
        server.load(0, 3)
        assert ask(address, "GET", "/ready")[0] == 200
        info = json.loads(ask(address, "GET", "/info")[1])
        assert (info["shard"], info["shards"], info["nodes"], info["held"]) == (0, 3, 2_000, 667)
    finally:
        server.shutdown()
        server.server_close()


def test_the_client_reads_the_graph_as_it_is(store: Store) -> None:
    client = GraphClient(store.addresses)
    assert client.wait(60) == RECIPE
    ids = np.random.default_rng(0).integers(2_000, size=500).astype(np.int32)
    assert np.array_equal(client.labels(ids), GRAPH.labels[ids])
    assert np.array_equal(client.features(ids, 8), GRAPH.features[ids])
    near = client.sample(ids, 4, seed=1)
    for node, row in zip(ids, near, strict=True):
        around = GRAPH.neighbors[GRAPH.offsets[node] : GRAPH.offsets[node + 1]]
        assert set(row.tolist()) <= set(around.tolist())


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/labels", b"123", 400),
        ("/labels", b"\1\0\0\0", 400),  # node 1 is in shard 1
        ("/sample?fanout=0", b"\0\0\0\0", 400),
        ("/sample?fanout=1000000", b"\0\0\0\0", 400),
        ("/sample?fanout=x", b"\0\0\0\0", 400),
        ("/sample?fanout=1&seed=-1", b"\0\0\0\0", 400),
        ("/nothing", b"\0\0\0\0", 404),
    ],
)
def test_a_wrong_request_is_refused_and_the_next_is_served(store: Store, path: str, body: bytes, status: int) -> None:
    assert ask(store.addresses[0], "POST", path, body)[0] == status
    assert ask(store.addresses[0], "POST", "/labels", b"\0\0\0\0")[0] == 200


def test_a_body_of_unknown_or_huge_length_is_refused(store: Store) -> None:
    connection = http.client.HTTPConnection(store.addresses[0], timeout=60)
    connection.putrequest("POST", "/labels")
    connection.putheader("Content-Length", str(4 * MAX_IDS + 4))
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()
    assert ask(store.addresses[0], "GET", "/nothing")[0] == 404


def test_a_refusal_names_the_replica(store: Store) -> None:
    client = GraphClient(store.addresses)
    client.wait(60)
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:\d+ answers 400"):
        client.labels(np.array([3_000], np.int32))


def test_another_copy_answers_when_one_is_gone() -> None:
    store = Store(replicas=6, shards=3)
    client = GraphClient(store.addresses, reader=1)
    client.wait(60)
    ids = np.arange(30, dtype=np.int32)
    for replica in (3, 4, 5):
        store.end(replica)
    assert np.array_equal(client.labels(ids), GRAPH.labels[ids])
    store.end(0)
    fresh = GraphClient(store.addresses)
    with pytest.raises(StoreError, match="does not answer"):
        fresh.wait(0.1)
    for replica in (1, 2):
        store.end(replica)


def test_replicas_that_are_not_one_graph_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="not 3 shards in order"):
        GraphClient(store.addresses[::-1]).wait(60)
    with pytest.raises(StoreError, match="not 3 shards in order"):
        GraphClient(store.addresses[:2]).wait(60)


def test_the_graph_comes_from_the_environment() -> None:
    assert recipe_from({}) == Recipe()
    assert recipe_from({"GRAPH_NODES": "70", "GRAPH_HOMOPHILY": "0.25"}) == Recipe(nodes=70, homophily=0.25)
    with pytest.raises(ValueError, match="many"):
        recipe_from({"GRAPH_NODES": "many"})


def test_training_beats_what_knows_no_graph(store: Store) -> None:
    events: list[dict[str, object]] = []
    result = train(store.addresses, Plan(steps=60, batch=64), events.append)
    assert result.accuracy > result.baseline + 0.05 > result.majority
    assert [event["step"] for event in events[1:]] == [10, 20, 30, 40, 50, 60]
    assert events[0]["event"] == "baseline"
