"""The real API server behind an address of its own, at which it can be made to fail.

Every answer but the fault itself is a real one.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml
from authority import Authority

from provisioner.cluster.credentials import Credentials
from provisioner.settings import Settings

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""

# About one connection, not about the request or its answer (RFC 9110, 7.6.1), or replaced here.
_REQUEST_OWN = frozenset({"host", "connection", "authorization", "content-length", "accept-encoding"})
_ANSWER_OWN = frozenset({"connection", "transfer-encoding", "content-length"})


@dataclass(frozen=True)
class Write:
    """A request that changes something.

    Attributes:
        agent: The user agent that makes it.
        method: POST, PUT, PATCH or DELETE.
        path: Path of the URL.
    """

    agent: str
    method: str
    path: str

    @property
    def resource(self) -> str:
        """For example `statefulsets`: the plural that the path names last."""
        parts = self.path.strip("/").split("/")
        if "namespaces" in parts[:-2]:
            return parts[parts.index("namespaces") + 2]
        return parts[2] if parts[0] == "api" else parts[3]


class ApiProxy:
    """The real API server behind an address of its own.

    Args:
        settings: Lead to the API server.
        folder: For the kubeconfig that leads here.
        tls: Whether it speaks TLS. Without, the engine sends no credentials.

    Attributes:
        port: Where it listens.
        requests: Method and path of each request so far.
        answer: Given a path, answers in the server's place; None: ask the server.
        rewrite: Given a path, gives the one that the server is asked for.
        before: Called with each write before the server has it; False: the server never gets it.
        after: Called with each write that the server has carried out, and the
            status of its answer, before that is passed on.
        delay: Seconds that each answer takes longer.
        token: The only one that is accepted; None: any.
        tls: With what it speaks TLS; None: it does not.
        stalled: While it is set, no request is answered before `released` is.
        released: Lets go of the requests that were stalled.
    """

    def __init__(self, settings: Settings, folder: Path, *, tls: bool = False) -> None:
        self._upstream = Credentials(settings).current()
        self._folder = folder
        self._authority = Authority(folder, "proxy") if tls else None
        self.tls = self._context(self._authority) if self._authority is not None else None
        self._streams: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.requests: list[str] = []
        self.answer: Callable[[str], Answer | None] = lambda _: None
        self.rewrite: Callable[[str], str] = lambda path: path
        self.before: Callable[[Write], bool] = lambda _: True
        self.after: Callable[[Write, int], None] = lambda _write, _status: None
        self.delay = 0.0
        self.token: str | None = None
        self.stalled = threading.Event()
        self.released = threading.Event()
        self.up()

    @property
    def token_file(self) -> Path:
        """Where its clients read their token."""
        return self._folder / "token"

    def settings(self) -> Settings:
        """Settings that lead here."""
        path = self._folder / "kubeconfig"
        self.token_file.write_text("replaced-by-the-proxy")
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        if self._authority is not None:
            cluster = {
                "server": f"https://127.0.0.1:{self.port}",
                "certificate-authority": str(self._authority.ca),
            }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"tokenFile": str(self.token_file)}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "tests"}}],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(document))
        return Settings(kubeconfig=path, context="proxy")

    @staticmethod
    def _context(authority: Authority) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue("server"))
        return context

    def up(self) -> None:
        """Accept connections again, at the same port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), type("Handler", (_Handler,), {"proxy": self}))
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


class _Handler(BaseHTTPRequestHandler):
    proxy: ApiProxy
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        if self.proxy.tls is not None:
            # The handshake is made at the first byte, in this connection's own thread.
            self.request = self.proxy.tls.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
        super().setup()
        with self.proxy._lock:
            self.proxy._streams.add(self.connection)

    def finish(self) -> None:
        with self.proxy._lock:
            self.proxy._streams.discard(self.connection)
        with contextlib.suppress(OSError):  # the client is not there any more
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at `requests`."""

    def do_GET(self) -> None:
        self.proxy.requests.append(f"{self.command} {self.path}")
        if self.proxy.stalled.is_set():
            self.proxy.released.wait()
            return
        time.sleep(self.proxy.delay)
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length) if length else None
        canned = self.proxy.answer(self.path) or self._unauthorized()
        if canned is not None:
            status, headers, content = canned
            self._begin(status, {**headers, "Content-Length": str(len(content))})
            self.wfile.write(content)
            return
        write = self._write()
        if write is not None and not self.proxy.before(write):
            self.close_connection = True
            return
        self._pass_on(body, write)

    do_POST = do_GET
    do_PUT = do_GET
    do_PATCH = do_GET
    do_DELETE = do_GET

    def _unauthorized(self) -> Answer | None:
        if self.proxy.token is None or self.headers.get("Authorization") == f"Bearer {self.proxy.token}":
            return None
        status = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}'
        return 401, {"Content-Type": "application/json"}, status

    def _write(self) -> Write | None:
        url = urlsplit(self.path)
        if self.command == "GET" or "dryRun" in parse_qs(url.query):
            return None
        return Write(self.headers.get("User-Agent", ""), self.command, url.path)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _pass_on(self, body: bytes | None, write: Write | None) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _REQUEST_OWN}
        answer = self.proxy._upstream.pool.request(
            self.command,
            self.proxy._upstream.host + self.proxy.rewrite(self.path),
            body=body,
            headers=headers | self.proxy._upstream.headers(),
            preload_content=False,
        )
        try:
            chunks: Iterator[bytes] = answer.stream(1 << 16)
            if write is not None:
                chunks = iter([b"".join(chunks)])
                self.proxy.after(write, answer.status)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _ANSWER_OWN}
            self._begin(answer.status, {**kept, "Transfer-Encoding": "chunked"})
            for chunk in chunks:
                if chunk:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            answer.close()
