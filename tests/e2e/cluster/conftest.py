"""A namespace of its own for each test, and an API server that can be made to fail.

The faults come from a proxy in front of the real API server, so that every
answer but the fault itself is a real one.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.cluster import ClusterCache, ClusterClient, Timing
from provisioner.cluster.api import NAMESPACES, SERVICES, STATEFULSETS, Resource
from provisioner.cluster.credentials import Credentials
from provisioner.identity import Identity, for_name
from provisioner.resources.manifests import service_manifest, stateful_set_manifest
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec, Port

PATIENCE = 90.0
QUICK = Timing(watch=6.0, slack=4.0, gap=1.0, stale=12.0, first_delay=0.05, longest_delay=0.5, refused=0.5)


def wait_for(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last: {value!r}"
        time.sleep(0.05)


def small_spec(**fields: Any) -> DataServiceSpec:
    """A small service that listens on port 9000."""
    values: dict[str, Any] = {
        "image": "localhost/busybox:sandbox",
        "image_pull_policy": "IfNotPresent",
        "command": ("sh", "-c", "echo serving; exec nc -ll -p 9000 -e cat"),
        "ports": (Port(name="tcp", port=9000),),
        "replicas": 2,
        "termination_grace_period_seconds": 0,
    }
    return DataServiceSpec(**(values | fields))


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait until something holds, and return it."""
    return wait_for


@pytest.fixture
def spec() -> Callable[..., DataServiceSpec]:
    """A small service that listens on port 9000, with fields of the test's own."""
    return small_spec


class Lab:
    """Makes and changes objects as the engine would, in one namespace."""

    def __init__(self, settings: Settings, namespace: str) -> None:
        self.settings = settings
        self.namespace = namespace
        self.client = ClusterClient(settings)
        self._connection = Credentials(settings).current()

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Mapping[str, Any]:
        answer = self._connection.pool.request(
            method,
            self._connection.host + path,
            body=json.dumps(body) if body is not None else None,
            headers={**self._connection.headers(), "Content-Type": content},
        )
        document: Mapping[str, Any] = answer.json()
        assert answer.status < 300, document
        return document

    def identity(self, name: str = "store") -> Identity:
        return for_name("tests", "e2e", namespace=self.namespace, name=name)

    def put(self, resource: Resource, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make one object, or change it."""
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        body = {"apiVersion": version, "kind": resource.kind, **manifest}
        path = resource.path(self.namespace, manifest["metadata"]["name"]) + "?fieldManager=tests&force=true"
        return self.call("PATCH", path, body, "application/apply-patch+yaml")

    def apply(self, identity: Identity, wanted: DataServiceSpec) -> None:
        """Make a service, or bring it to a specification."""
        self.put(SERVICES, service_manifest(identity, wanted))
        self.put(STATEFULSETS, stateful_set_manifest(identity, wanted))

    def delete(self, resource: Resource, name: str) -> None:
        self.call("DELETE", resource.path(self.namespace, name))


@pytest.fixture
def lab(settings: Settings) -> Iterator[Lab]:
    """A namespace of its own, deleted afterwards."""
    made = Lab(settings, f"cluster-{secrets.token_hex(4)}")
    made.put(NAMESPACES, {"metadata": {"name": made.namespace}})
    yield made
    made.call("DELETE", NAMESPACES.path(None, made.namespace))


@pytest.fixture
def watch() -> Iterator[Callable[..., ClusterCache]]:
    """Start a cache that notices within seconds, and end it with the test."""
    started: list[ClusterCache] = []

    def start(client: ClusterClient, **options: Any) -> ClusterCache:
        cache = ClusterCache(client, timing=QUICK, **options)
        started.append(cache)
        cache.start()
        return cache

    yield start
    for cache in started:
        cache.stop()


@pytest.fixture
def cache(lab: Lab, watch: Callable[..., ClusterCache]) -> ClusterCache:
    """A cache in sync with the real API server."""
    made = watch(lab.client)
    assert made.wait_synced(PATIENCE), made.problems()
    return made


class ApiProxy:
    """The real API server behind an address of its own, at which it can be made to fail."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._upstream = Credentials(settings).current()
        self._folder = folder
        self._streams: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.requests: list[str] = []
        # Given a path, answers (status, headers, body) in the server's place; None: ask the server.
        self.answer: Callable[[str], tuple[int, Mapping[str, str], bytes] | None] = lambda _: None
        self.rewrite: Callable[[str], str] = lambda path: path
        self.stalled = threading.Event()
        self.released = threading.Event()
        self.up()

    def settings(self) -> Settings:
        """Settings that lead here."""
        path = self._folder / "kubeconfig"
        document = {
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "tests", "user": {"token": "replaced-by-the-proxy"}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "tests"}}],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(document))
        return Settings(kubeconfig=path, context="proxy")

    def up(self) -> None:
        """Accept connections again, at the same port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections and cut those that are open, as an API server that died."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def cut(self) -> None:
        """Cut every open connection in the middle of what it carries."""
        with self._lock:
            for stream in self._streams:
                with contextlib.suppress(OSError):  # it has ended by itself
                    stream.shutdown(socket.SHUT_RDWR)
            self._streams.clear()

    def close(self) -> None:
        self.released.set()
        self.down()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with proxy._lock:
                    proxy._streams.add(self.connection)

            def finish(self) -> None:
                with proxy._lock:
                    proxy._streams.discard(self.connection)
                super().finish()

            def log_message(self, *_: object) -> None:
                """Nothing: the tests look at `requests`."""

            def do_GET(self) -> None:
                proxy.requests.append(f"{self.command} {self.path}")
                if proxy.stalled.is_set():
                    proxy.released.wait()
                    return
                canned = proxy.answer(self.path)
                if canned is not None:
                    status, headers, body = canned
                    self._begin(status, {**headers, "Content-Length": str(len(body))})
                    self.wfile.write(body)
                    return
                self._pass_on()

            do_POST = do_GET
            do_DELETE = do_GET

            def _begin(self, status: int, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def _pass_on(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                headers = {name: self.headers[name] for name in ("Accept", "Content-Type") if name in self.headers}
                answer = proxy._upstream.pool.request(
                    self.command,
                    proxy._upstream.host + proxy.rewrite(self.path),
                    body=self.rfile.read(length) if length else None,
                    headers=headers | proxy._upstream.headers(),
                    preload_content=False,
                )
                try:
                    self._begin(answer.status, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
                    for chunk in answer.stream(1 << 16):
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True
                finally:
                    answer.close()

        return Handler


@pytest.fixture
def proxy(settings: Settings, tmp_path: Path) -> Iterator[ApiProxy]:
    """The API server, behind a proxy of this test."""
    made = ApiProxy(settings, tmp_path)
    yield made
    made.close()
