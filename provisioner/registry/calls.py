"""What belongs to one call: who makes it, how long it may take, when it is sent again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import grpc
import grpc.aio

from provisioner.registry.wire import Method

Metadata = tuple[tuple[str, str | bytes], ...]

HOP_HEADER = "x-agent-gateway"
"""Carries the names of the gateways that a call has passed."""
RETRY_WINDOW = 30.0
"""Seconds for which UNAVAILABLE is retried when nothing sets a deadline."""

_FIRST_DELAY, _LONGEST_DELAY = 0.05, 1.0
_OWN_HEADERS = frozenset({"user-agent", "content-type", "te", "host"})


class CallRefusedError(Exception):
    """The call is not forwarded.

    Args:
        code: The gRPC code for the caller.
        details: Why, for the caller.
    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Sink(Protocol):
    """Who wants to know the metadata that an agent sends."""

    async def initial(self, metadata: Metadata) -> None:
        """Take what comes before the first message."""

    def trailing(self, metadata: Metadata) -> None:
        """Take what comes with the final status."""


class NoSink:
    """Nobody does."""

    async def initial(self, metadata: Metadata) -> None:
        """Drop it."""

    def trailing(self, metadata: Metadata) -> None:
        """Drop it."""


class Caller:
    """The side that a call comes from.

    Args:
        metadata: What it sent along.
        time_left: Seconds until its deadline, or None when it set none.
        sink: Gets the metadata of the answer.
    """

    def __init__(self, metadata: Metadata = (), time_left: float | None = None, sink: Sink | None = None) -> None:
        self.metadata = metadata
        self.sink: Sink = sink or NoSink()
        self._time_left = time_left
        self._started = time.monotonic()

    def left(self, own: float | None) -> float | None:
        """Seconds left of the shorter of the caller's time and `own`; None when neither is set."""
        limits = [limit for limit in (self._time_left, own) if limit is not None]
        return max(0.0, min(limits) - (time.monotonic() - self._started)) if limits else None

    def left_for_retries(self, own: float | None) -> float:
        """Seconds for which the call may still be sent again."""
        left = self.left(own)
        return RETRY_WINDOW - (time.monotonic() - self._started) if left is None else left


@dataclass
class Tally:
    """What is counted about one call."""

    agent: str = "none"
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN


def passed_on(metadata: grpc.aio.Metadata | Metadata | None) -> Metadata:
    """The part of metadata that belongs to the two ends, not to the connection between them."""
    return tuple(
        (key, value) for key, value in metadata or () if not key.startswith((":", "grpc-")) and key not in _OWN_HEADERS
    )


def code_of(error: grpc.aio.AioRpcError) -> grpc.StatusCode:
    """The code of a failure; a call that the agent's server dropped counts as UNAVAILABLE.

    A gRPC server that is shutting down cancels the calls that still reach it,
    in just this form. Nobody asked for that: a caller who cancels is not told.
    """
    dropped = error.code() is grpc.StatusCode.CANCELLED and error.details() in ("CANCELLED", "Cancelled", "", None)
    return grpc.StatusCode.UNAVAILABLE if dropped else error.code()


def retry_delay(method: Method, code: grpc.StatusCode, attempt: int, remaining: float, spread: float) -> float | None:
    """Seconds to wait before a call is sent again, or None when it must not be.

    Args:
        method: What was called.
        code: What came back.
        attempt: How often it has been repeated already.
        remaining: Seconds for which it may be.
        spread: From 0 to 1; at random, so that callers do not come back as one.
    """
    if not method.repeatable or code is not grpc.StatusCode.UNAVAILABLE:
        return None
    delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(attempt, 10)) * (0.5 + spread / 2)
    return delay if delay < remaining else None
