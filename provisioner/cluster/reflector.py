"""One watch of one kind: list once, then follow every change, whatever breaks in between.

The protocol is the API server's own (Kubernetes API concepts, "Efficient
detection of changes"): a list gives a resource version, a watch from there
gives every later change, bookmarks move the version on in quiet times, and
410 Gone asks for a new list. The watch is ended by the server every half
minute and taken up again from its last bookmark: so a dead connection shows
within that time, at the cost of one request per kind, however many services.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import structlog
import urllib3
from urllib3.exceptions import HTTPError

from provisioner.cluster.api import Call, Resource
from provisioner.cluster.health import Health, Timing
from provisioner.cluster.metrics import WATCH_LISTS, WATCH_RESTARTS
from provisioner.cluster.objects import Event, Namespace
from provisioner.cluster.parse import items, mapping, number, text
from provisioner.cluster.store import Object
from provisioner.cluster.transport import JSON, ExpiredError, ThrottledError, Transport, error_from_status
from provisioner.errors import PermanentError, ProvisionerError, TransientError

PAGE = 250
Item: TypeAlias = Object | Event | Namespace
_HINT = "it is taken up again from where it was"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Target:
    """What one watch is about.

    Attributes:
        resource: Which kind.
        parse: What we keep of one of its objects.
        namespace: In which namespace; None for all of them.
        selector: The `labelSelector` or `fieldSelector` of it, as (name, value).
        accept: Media types of its list and its watch.
        optional: Whether the cache does without it when it is not allowed.
    """

    resource: Resource
    parse: Callable[[Mapping[str, Any]], Item]
    namespace: str | None = None
    selector: tuple[str, str] | None = None
    accept: tuple[str, str] = (JSON, JSON)
    optional: bool = False


class Sink(Protocol):
    """Where a reflector brings what it sees; called from its thread."""

    def replaced(self, target: Target, found: Sequence[Item]) -> None:
        """Everything there is, after a list."""

    def changed(self, item: Item, *, deleted: bool) -> None:
        """One object was added, modified or deleted."""


class Backoff:
    """Delays that double up to a bound, each shortened by chance so that not all come at once.

    Args:
        timing: First and longest delay.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._failures = 0

    def reset(self) -> None:
        """Begin again with the first delay."""
        self._failures = 0

    def next(self) -> float:
        """The next delay, in seconds."""
        ceiling = min(self._timing.longest_delay, self._timing.first_delay * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return random.uniform(ceiling / 2, ceiling)  # noqa: S311 (jitter, not a secret)


class Reflector:
    """Keeps a sink up to date with one kind of object, in a thread of its own.

    Args:
        transport: How to call the API server.
        target: What to watch.
        sink: Where to bring it.
        timing: How long to wait for what.
    """

    def __init__(self, transport: Transport, target: Target, sink: Sink, timing: Timing) -> None:
        self.target = target
        self._transport = transport
        self._sink = sink
        self._timing = timing
        self._stopping = threading.Event()
        self._response: urllib3.BaseHTTPResponse | None = None
        self._version: str | None = None
        self._warned = ""
        self._health = Health(contact=time.monotonic())
        where = f"-{target.namespace}" if target.namespace else ""
        self._thread = threading.Thread(target=self._run, name=f"watch-{target.resource.plural}{where}", daemon=True)

    @property
    def health(self) -> Health:
        """How it is doing now."""
        return self._health

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; it does not wait for that."""
        self._stopping.set()
        response = self._response
        if response is not None:
            # Closing alone would not wake a thread that waits in a read.
            try:
                response.shutdown()
            except (OSError, ValueError, HTTPError) as error:
                _log.debug("the watch was closing already", error=str(error))

    def join(self, seconds: float) -> bool:
        """Wait until it has ended.

        Args:
            seconds: For how long at most.

        Returns:
            Whether it has.
        """
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        delay = Backoff(self._timing)
        while not self._stopping.is_set():
            try:
                # After a loss of contact that made the cache stale, only a list makes it fresh again.
                if self._version is None or self._silence() > self._timing.gap:
                    self._list()
                if self._watch() >= min(1.0, self._timing.watch / 2):
                    delay.reset()
                else:
                    self._pause(delay, None, "ended at once")
            except ExpiredError as error:
                self._version = None
                self._pause(delay, error, "expired")
            except ProvisionerError as error:
                self._pause(delay, error, error.reason)
            except Exception as error:  # noqa: BLE001 (logged; one broken object must not end the watch of all)
                _log.exception("the watch failed", resource=self.target.resource.plural)
                self._version = None
                self._pause(delay, TransientError(f"{type(error).__name__}: {error}", reason="Fault"), "fault")
        self._health = self._health.ended(time.monotonic(), self._timing)

    def _silence(self) -> float:
        """Seconds since what is known was complete."""
        now = time.monotonic()
        return now - self._health.complete(now, self._timing)

    def _pause(self, delay: Backoff, error: ProvisionerError | None, cause: str) -> None:
        """Take note of a failure and wait before the next attempt."""
        if self._stopping.is_set():
            return
        WATCH_RESTARTS.labels(self.target.resource.plural, cause).inc()
        if error is not None:
            self._health = self._health.lost(time.monotonic(), error, self._timing)
            # Once per kind of failure, and not for a cut that heals at the next attempt.
            lasting = self._silence() > self._timing.gap or isinstance(error, PermanentError)
            if lasting and self._warned != error.reason:
                self._warned = error.reason
                _log.warning("the watch is interrupted", cause=error.message, reason=error.reason, hint=error.hint)
        seconds = delay.next()
        if isinstance(error, ThrottledError):
            seconds = max(seconds, error.seconds)
        elif isinstance(error, PermanentError):
            seconds = self._timing.refused
        self._stopping.wait(seconds)

    def _back(self) -> None:
        if self._warned:
            _log.info("the watch is back", resource=self.target.resource.plural)
            self._warned = ""

    def _query(self) -> dict[str, str | int]:
        return dict([self.target.selector]) if self.target.selector else {}

    def _list(self) -> None:
        """List everything, in pages, and bring it to the sink."""
        WATCH_LISTS.labels(self.target.resource.plural).inc()
        call = Call("list", self.target.resource, self.target.namespace)
        query = self._query() | {"limit": PAGE}
        # All pages show what there was at the first.
        begin = time.monotonic()
        found: list[Item] = []
        while True:
            page = self._transport.json(call, query=query, accept=self.target.accept[0])
            # Page by page: what is kept takes a twentieth of the memory of what was sent.
            found += [self.target.parse(document) for document in items(page, "items")]
            metadata = mapping(page, "metadata")
            token = metadata.get("continue")
            if not token or self._stopping.is_set():
                break
            query["continue"] = str(token)
        self._sink.replaced(self.target, found)
        self._version = text(metadata, "resourceVersion")
        self._health = self._health.listed(begin)

    def _watch(self) -> float:
        """Follow changes until the server ends the watch.

        Returns:
            How long that was, in seconds.
        """
        begin = time.monotonic()
        seconds = max(1, round(self._timing.watch * random.uniform(0.8, 1.0)))  # noqa: S311 (not all at once)
        query = self._query() | {
            "watch": "1",
            "resourceVersion": self._version or "",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        call = Call("watch", self.target.resource, self.target.namespace)
        response = self._transport.open(
            call, query=query, accept=self.target.accept[1], read_seconds=seconds + self._timing.slack
        )
        self._response = response
        try:
            if self._stopping.is_set():
                return 0.0
            self._health = self._health.begun(time.monotonic())
            self._back()
            for line in _lines(response, call):
                self._event(line, call)
                self._health = self._health.heard(time.monotonic(), self._timing)
            self._health = self._health.ended(time.monotonic(), self._timing)
        finally:
            self._response = None
            response.close()
        return time.monotonic() - begin

    def _event(self, line: bytes, call: Call) -> None:
        try:
            event = json.loads(line)
        except ValueError as error:
            raise TransientError(f"cannot {call}: not JSON: {line[:80]!r}", reason="InvalidAnswer") from error
        kind, document = text(event, "type") if isinstance(event, dict) else "", mapping(event, "object")
        if kind == "ERROR":
            raise error_from_status(number(document, "code", 500), document, call)
        version, seen = self._version or "", text(mapping(document, "metadata"), "resourceVersion")
        if seen.isdigit() and version.isdigit() and int(seen) < int(version):
            # Time goes backwards: the cluster was restored from a backup, or it is another one.
            raise ExpiredError(f"cannot {call}: resource version {seen} is older than {version}")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self._sink.changed(self.target.parse(document), deleted=kind == "DELETED")
        self._version = seen or version


def _lines(response: urllib3.BaseHTTPResponse, call: Call) -> Iterator[bytes]:
    """The complete lines of a stream, as they arrive."""
    rest = b""
    try:
        for chunk in response.stream(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
    except HTTPError as error:
        raise TransientError(
            f"cannot {call}: the connection was cut: {error}", reason="Unreachable", hint=_HINT
        ) from error
    except (OSError, ValueError, AttributeError) as error:
        # What urllib3 lets through when the socket is shut down under it.
        raise TransientError(
            f"cannot {call}: the connection was closed: {error}", reason="Unreachable", hint=_HINT
        ) from error
