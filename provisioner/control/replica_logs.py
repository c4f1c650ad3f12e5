"""The logs of a service's replicas, a page at a time, each page going on where the last one ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from provisioner.cluster import ClusterClient, Snapshot
from provisioner.errors import ProvisionerError, UsageError
from provisioner.identity import Identity

DEFAULT_LINES = 100
MOST_LINES = 2000
_STAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]{1,9})?Z"
_LINE = re.compile(rf"(?P<stamp>{_STAMP}) (?P<text>.*)", re.DOTALL)
_TOKEN = re.compile(rf"(?P<pod>[a-z0-9-]{{1,63}})={_STAMP}")


@dataclass(frozen=True)
class LogEntry:
    """One line of a replica's log.

    Attributes:
        stamp: When it was written, as the container runtime says it (RFC 3339); "" if it is no line of the log.
        pod: Name of the pod.
        text: The line.
    """

    stamp: str
    pod: str
    text: str

    def __str__(self) -> str:
        return f"{self.pod} | {self.text}"


@dataclass(frozen=True)
class LogPage:
    """Some lines of all replicas, in the order in which they were written.

    Attributes:
        entries: The lines.
        token: Gives the page after this one.
    """

    entries: tuple[LogEntry, ...]
    token: str


def read_token(token: str) -> dict[str, str]:
    """Where each pod's log was left: pod -> time.

    Args:
        token: Of a page; "" at the beginning.

    Raises:
        UsageError: It is not of a page.
    """
    parts = token.split(",") if token else []
    if not all(_TOKEN.fullmatch(part) for part in parts):
        raise UsageError(f"not the token of a page of logs: {token[:80]!r}", hint="begin again, without a token")
    return dict(part.split("=", 1) for part in parts)


def write_token(seen: Mapping[str, str]) -> str:
    """The inverse of `read_token`."""
    return ",".join(f"{pod}={stamp}" for pod, stamp in sorted(seen.items()))


def page_of(entries: Iterable[LogEntry], seen: Mapping[str, str], lines: int) -> LogPage:
    """The page of what was not seen yet.

    Args:
        entries: What was read of all pods.
        seen: Where each pod's log was left.
        lines: Longest page. At the beginning these are the newest lines, afterwards the next ones.
    """
    unseen = [entry for entry in entries if not entry.stamp or _key(entry.stamp) > _key(seen.get(entry.pod, ""))]
    # Stable: what a pod wrote at one moment stays in its order.
    fresh = sorted(unseen, key=lambda entry: _key(entry.stamp))
    shown = fresh[:lines] if seen else fresh[-lines:]
    reached = dict(seen)
    for entry in shown:
        if entry.stamp:
            reached[entry.pod] = entry.stamp
    return LogPage(tuple(shown), write_token(reached))


def _key(stamp: str) -> str:
    """Comparable as text: a stamp without its last zeros is not shorter in time."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<9}" if stamp else ""


class ReplicaLogs:
    """Reads logs from the API server.

    Args:
        client: The cluster.
        snapshot: What the cluster shows of a service.
    """

    def __init__(self, client: ClusterClient, snapshot: Callable[[Identity], Snapshot]) -> None:
        self._client = client
        self._snapshot = snapshot

    def page(self, identity: Identity, *, lines: int, token: str) -> LogPage:
        """One page of the logs of a service's replicas, read from the cluster now.

        A pod whose log cannot be read has one line that says so: it must not
        hide what the others say.

        Args:
            identity: The service.
            lines: Longest page; 0 for the default of 100.
            token: Of the page before; "" at the beginning.

        Raises:
            UsageError: The token is not of a page.
        """
        seen = read_token(token)
        count = min(lines or DEFAULT_LINES, MOST_LINES)
        names = [pod.name for pod in self._snapshot(identity).pods]
        entries = [entry for pod in names for entry in self._read(identity.namespace, pod, seen.get(pod, ""), count)]
        return page_of(entries, seen, count)

    def _read(self, namespace: str, pod: str, since: str, lines: int) -> Iterator[LogEntry]:
        try:
            with self._client.logs(
                namespace, pod, tail=None if since else lines, timestamps=True, since=since
            ) as found:
                for line in found:
                    match = _LINE.fullmatch(line)
                    if match is not None:
                        yield LogEntry(match["stamp"], pod, match["text"])
        except ProvisionerError as error:
            yield LogEntry("", pod, f"(its log cannot be read: {error.message})")
