"""The store's client: one graph, whatever number of replicas it is spread over."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gnn.graph import Floats, Ids, Recipe

_TIMEOUT = 30.0


class StoreError(Exception):
    """A replica cannot be reached, or refused a request."""


class GraphClient:
    """Samples and reads a sharded graph.

    Args:
        addresses: `host:port` of each replica, in the order of the replicas.
        reader: Number of this reader: it decides which copy of a shard it asks.
    """

    def __init__(self, addresses: Sequence[str], reader: int = 0) -> None:
        self._addresses = list(addresses)
        self._reader = reader
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self._addresses)), thread_name_prefix="store")
        self._shards = 0
        self.bytes_received = 0

    def wait(self, seconds: float) -> Recipe:
        """Wait until every replica answers.

        Args:
            seconds: How long at most.

        Returns:
            What graph it is.

        Raises:
            StoreError: A replica did not answer in time, or they do not form
                one graph.
        """
        deadline = time.monotonic() + seconds
        infos = [self._info(address, deadline) for address in self._addresses]
        counts = {info["shards"] for info in infos}
        if len(counts) != 1:
            raise StoreError(f"the replicas do not agree on the number of shards: {sorted(counts)}")
        self._shards = counts.pop()
        held = [info["shard"] for info in infos]
        if held != [replica % self._shards for replica in range(len(held))] or len(held) < self._shards:
            raise StoreError(f"replicas with shards {held} are not {self._shards} shards in order")
        names = Recipe.__dataclass_fields__
        return Recipe(**{name: infos[0][name] for name in names})

    def sample(self, ids: Ids, fanout: int, seed: int) -> Ids:
        """`fanout` neighbours of each node, one row per node."""
        return self._gather(ids, f"/sample?fanout={fanout}&seed={seed}", np.dtype("<i4"), fanout)

    def features(self, ids: Ids, width: int) -> Floats:
        """One row of `width` features per node; a node that occurs often is read once."""
        unique, inverse = np.unique(ids, return_inverse=True)
        return self._gather(unique, "/features", np.dtype("<f4"), width)[inverse.ravel()]

    def labels(self, ids: Ids) -> Ids:
        """The label of each node."""
        return self._gather(ids, "/labels", np.dtype("<i4"), 1).ravel()

    def _gather(self, ids: Ids, path: str, kind: np.dtype, width: int) -> np.ndarray:
        owners = ids % self._shards
        places = [np.flatnonzero(owners == shard) for shard in range(self._shards)]
        wanted = [(shard, place) for shard, place in enumerate(places) if place.size]
        bodies = self._pool.map(lambda item: self._post(item[0], path, ids[item[1]]), wanted)
        result = np.empty((ids.size, width), kind)
        for (_, place), body in zip(wanted, bodies, strict=True):
            result[place] = np.frombuffer(body, kind).reshape(place.size, width)
            self.bytes_received += len(body)
        return result

    def _post(self, shard: int, path: str, ids: Ids) -> bytes:
        copies = self._addresses[shard :: self._shards]
        error: Exception | None = None
        # The copy that is this reader's first; each copy twice, since a kept connection may have gone stale.
        for attempt in range(2 * len(copies)):
            address = copies[(self._reader + attempt // 2) % len(copies)]
            try:
                return self._request(address, "POST", path, ids.astype("<i4").tobytes())
            except OSError as failed:
                error = failed
            except http.client.HTTPException as failed:
                error = failed
        raise StoreError(f"no copy of shard {shard} answers: {error}")

    def _info(self, address: str, deadline: float) -> dict:
        while True:
            try:
                return json.loads(self._request(address, "GET", "/info", b""))
            except (OSError, http.client.HTTPException, StoreError) as error:
                if time.monotonic() > deadline:
                    raise StoreError(f"{address} does not answer: {error}") from error
                time.sleep(0.2)

    def _request(self, address: str, method: str, path: str, body: bytes) -> bytes:
        connections = self._local.__dict__.setdefault("connections", {})
        connection = connections.get(address)
        if connection is None:
            connection = connections[address] = http.client.HTTPConnection(address, timeout=_TIMEOUT)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if response.status != http.client.OK:
            raise StoreError(f"{address} answers {response.status} to {path}: {answer[:200].decode(errors='replace')}")
        return answer
