"""The graph store: one replica serves one shard over HTTP. Standard library and numpy, nothing else.

    GET  /ready                        200 once the shard is in memory, 503 before
    GET  /info                         what is served, as JSON
    POST /sample?fanout=F&seed=S       int32 ids -> int32, F neighbours of each
    POST /features                     int32 ids -> float32, one row of each
    POST /labels                       int32 ids -> int32

Ids and answers are raw little-endian arrays. Replica i serves shard i modulo
the number of shards, so a service with more replicas than shards has copies,
and growing it restarts nobody.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import asdict, fields
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from gnn.graph import Recipe, Shard, generate

MAX_IDS = 1 << 20
MAX_FANOUT = 100


class StoreServer(ThreadingHTTPServer):
    """Listens at once and answers 503 until it is given its shard.

    Args:
        address: Host and port.
        recipe: The graph.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], recipe: Recipe) -> None:
        super().__init__(address, Handler)
        self.recipe = recipe
        self.shard: Shard | None = None

    def load(self, index: int, count: int) -> None:
        """Take a shard into memory and become ready."""
        self.shard = Shard(generate(self.recipe), index, count)


class Handler(BaseHTTPRequestHandler):
    """One connection, kept open for many requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 300
    server: StoreServer

    def do_GET(self) -> None:
        shard = self.server.shard
        if self.path == "/ready":
            self._answer(HTTPStatus.OK if shard else HTTPStatus.SERVICE_UNAVAILABLE, b"")
        elif self.path == "/info" and shard:
            info = {**asdict(self.server.recipe), "shard": shard.index, "shards": shard.count, "held": shard.nodes.size}
            self._answer(HTTPStatus.OK, json.dumps(info).encode(), "application/json")
        else:
            self._refuse(HTTPStatus.NOT_FOUND if shard else HTTPStatus.SERVICE_UNAVAILABLE, self.path)

    def do_POST(self) -> None:
        shard = self.server.shard
        given = self.headers.get("Content-Length", "")
        if not given.isdigit() or int(given) % 4 or int(given) > 4 * MAX_IDS:
            self.close_connection = True  # the body is not read, so the next request cannot be found
            self._refuse(HTTPStatus.BAD_REQUEST, f"at most {MAX_IDS} ids of 4 bytes each, not {given!r} bytes")
            return
        body = self.rfile.read(int(given))
        if shard is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the shard is not loaded yet")
            return
        try:
            result = self._result(shard, np.frombuffer(body, "<i4"))
        except KeyError:
            self._refuse(HTTPStatus.NOT_FOUND, self.path)
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self._answer(HTTPStatus.OK, result.tobytes())

    def _result(self, shard: Shard, ids: np.ndarray) -> np.ndarray:
        url = urlsplit(self.path)
        if url.path == "/sample":
            query = {key: int(values[0]) for key, values in parse_qs(url.query).items()}
            fanout, seed = query.get("fanout", 0), query.get("seed", 0)
            if not 1 <= fanout <= MAX_FANOUT or seed < 0:
                raise ValueError(f"fanout from 1 to {MAX_FANOUT} and a seed of at least 0, not {fanout} and {seed}")
            return shard.sample(ids, fanout, seed).astype("<i4")
        answers = {"/features": lambda: shard.features(ids).astype("<f4"), "/labels": lambda: shard.labels(ids)}
        return answers[url.path]()

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "application/octet-stream") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, why.encode(), "text/plain; charset=utf-8")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of what went well: a log line per batch would drown the rest."""


def recipe_from(environment: dict[str, str]) -> Recipe:
    """The recipe in `GRAPH_NODES`, `GRAPH_EDGES`, ...; a default for each that is not set."""
    given = {field.name: environment.get(f"GRAPH_{field.name.upper()}") for field in fields(Recipe)}
    kinds = {field.name: type(field.default) for field in fields(Recipe)}
    return Recipe(**{name: kinds[name](value) for name, value in given.items() if value})


def main() -> None:
    """Serve the shard that belongs to this replica until SIGTERM."""
    environment = dict(os.environ)
    replica = int(environment.get("DATA_SERVICE_REPLICA") or environment["HOSTNAME"].rpartition("-")[2])
    shards = int(environment.get("GRAPH_SHARDS", "1"))
    server = StoreServer(("", int(environment.get("GRAPH_PORT", "9000"))), recipe_from(environment))
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}).start()
    server.load(replica % shards, shards)
    shard = server.shard
    assert shard is not None
    print(f"replica {replica} serves shard {shard.index} of {shards}: {shard.nodes.size} nodes", flush=True)


if __name__ == "__main__":
    main()
