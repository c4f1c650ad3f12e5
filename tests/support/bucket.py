"""An object store that speaks S3 over HTTP: enough of it for the engine's client and for fsspec's, kept in memory.

It serves one bucket, whatever it is called, and believes every signature. Listings come in pages of a few keys, so
that who reads only the first page is found out.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PAGE = 3
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "anybody", "AWS_SECRET_ACCESS_KEY": "anything", "AWS_REGION": "here"}


class Bucket(ThreadingHTTPServer):
    """The objects of one bucket.

    Attributes:
        objects: Key -> content and time of the last change.
        read_only: Whether every change is refused.
        away: Whether every request is refused.
        requests: Method and key (or prefix) of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.read_only = self.away = False
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """The backend URL by which the engine and fsspec find it."""
        endpoint = f"127.0.0.1:{self.server_address[1]}"
        return f"s3://bucket/state?endpoint={endpoint}&disableSSL=true&s3ForcePathStyle=true&region=here"

    def put(self, key: str, content: bytes, changed: datetime | None = None) -> None:
        with self.lock:
            self.objects[key] = (content, changed or datetime.now(UTC))

    def names(self, prefix: str = "") -> list[str]:
        with self.lock:
            return sorted(key for key in self.objects if key.startswith(prefix))


@contextmanager
def served() -> Iterator[Bucket]:
    """A bucket that answers as long as the context lasts."""
    bucket = Bucket()
    thread = threading.Thread(target=bucket.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield bucket
    finally:
        bucket.shutdown()
        thread.join()
        bucket.server_close()


def credentials() -> dict[str, str]:
    """Environment variables that any client of it needs."""
    return dict(_CREDENTIALS)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _dispatch(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        _, _, key = unquote(parts.path).lstrip("/").partition("/")
        content = self._content()
        self.server.requests.append((self.command, key or query.get("prefix", "")))
        if self.server.away or (self.server.read_only and self.command in ("PUT", "POST", "DELETE")):
            self._fail(403, "AccessDenied")
        elif not key:
            self._bucket(query, content)
        else:
            getattr(self, f"_{self.command.lower()}")(key, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _dispatch

    def _content(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return body
        plain = b""
        while True:
            head, _, body = body.partition(b"\r\n")
            size = int(head.partition(b";")[0], 16)
            if not size:
                return plain
            plain, body = plain + body[:size], body[size + 2 :]

    def _bucket(self, query: dict[str, str], content: bytes) -> None:
        if self.command == "POST" and "delete" in query:
            for key in re.findall("<Key>(.*?)</Key>", content.decode()):
                with self.server.lock:
                    self.server.objects.pop(unescape(key), None)
            self._answer(200, _document("DeleteResult", ""))
        elif "location" in query:
            self._answer(200, _document("LocationConstraint", "here"))
        elif self.command == "GET":
            self._answer(200, self._listing(query))
        else:
            self._answer(200)

    def _listing(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        limit = min(PAGE, int(query.get("max-keys") or PAGE))
        entries: dict[str, str] = {}
        for key in self.server.names(prefix):
            rest = key[len(prefix) :]
            folder = f"{prefix}{rest.partition(delimiter)[0]}{delimiter}" if delimiter and delimiter in rest else ""
            if folder:
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                content, changed = self.server.objects[key]
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{changed:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                    f"<ETag>{_etag(content)}</ETag><Size>{len(content)}</Size></Contents>"
                )
        names = [name for name in sorted(entries) if name > after]
        page, more = names[:limit], len(names) > limit
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = "".join(entries[name] for name in page)
        facts = f"<KeyCount>{len(page)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        return _document("ListBucketResult", f"<Name>bucket</Name><Prefix>{escape(prefix)}</Prefix>{facts}{body}")

    def _get(self, key: str, _: bytes) -> None:
        with self.server.lock:
            found = self.server.objects.get(key)
        if found is None:
            self._fail(404, "NoSuchKey")
            return
        content, changed = found
        status, headers = 200, {"ETag": _etag(content), "Last-Modified": f"{changed:%a, %d %b %Y %H:%M:%S GMT}"}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if part is not None:
            first, last = int(part[1]), int(part[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}"
            status, content = 206, content[first : last + 1]
        self._answer(status, content, headers)

    _head = _get

    def _put(self, key: str, content: bytes) -> None:
        source = self.headers.get("x-amz-copy-source")
        if source is None:
            self.server.put(key, content)
            self._answer(200, headers={"ETag": _etag(content)})
            return
        _, _, other = unquote(source).lstrip("/").partition("/")
        with self.server.lock:
            found = self.server.objects.get(other)
        if found is None:
            self._fail(404, "NoSuchKey")
            return
        self.server.put(key, found[0])
        self._answer(200, _document("CopyObjectResult", f"<ETag>{_etag(found[0])}</ETag>"))

    def _delete(self, key: str, _: bytes) -> None:
        with self.server.lock:
            self.server.objects.pop(key, None)
        self._answer(204)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, content: bytes = b"", headers: dict[str, Any] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _document(name: str, content: str) -> bytes:
    return f'<?xml version="1.0"?><{name} xmlns="{_NAMESPACE}">{content}</{name}>'.encode()


def _etag(content: bytes) -> str:
    return f'"{md5(content, usedforsecurity=False).hexdigest()}"'
