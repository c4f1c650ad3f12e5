"""The server that one CLI process calls back: it runs the inline program and takes the events.

Two ways were open. The Automation API's `Stack.up` does this too, but ends
every operation with questions (outputs, history) that are a process each, so it
would have to be fed made-up answers through a subclass; it has no `--remove` on
destroy; and it leaves its two gRPC servers to the garbage collector. Here both
services share one server, which is stopped and waited for when the operation
ends, and everything that is asked afterwards is known from the events.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib import import_module
from types import TracebackType
from typing import Any

import grpc
import structlog
from google.protobuf.empty_pb2 import Empty
from pulumi.automation import EngineEvent, PulumiFn
from pulumi.runtime.proto import events_pb2_grpc, language_pb2_grpc

from provisioner.engine.language import GRPC_OPTIONS, Language

OnEvent = Callable[[EngineEvent], None]

# One for the program, one for the events, two for the short questions.
_THREADS = 4
_PROVIDER_MODULES = ("meta.v1", "core.v1", "apps.v1", "policy.v1")

_LOADING = threading.Lock()

_log = structlog.get_logger(__name__)


class _Events(events_pb2_grpc.EventsServicer):
    """Takes the engine's events as they happen."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event

    def StreamEvents(self, request_iterator: Iterator[Any], context: grpc.ServicerContext) -> Empty:  # noqa: ARG002
        for request in request_iterator:
            try:
                event = EngineEvent.from_json(json.loads(request.event))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                # A newer engine may tell of kinds of steps that the SDK has no name for.
                _log.warning("an event of the engine was not understood", error=str(error))
                continue
            self._on_event(event)
        return Empty()


def load_provider_sdk() -> None:
    """Import what an inline program needs; it takes seconds, in which no other thread gets far.

    A server calls it before it serves. Otherwise the first operation does it.
    """
    with _LOADING:
        _load_modules()


@lru_cache(maxsize=1)
def _load_modules() -> None:
    # pulumi_kubernetes loads each of its modules at the first look into it, and two threads that look at once find a
    # module without its classes.
    for name in _PROVIDER_MODULES:
        vars(import_module(f"pulumi_kubernetes.{name}"))


class Host:
    """A gRPC server on loopback for the time of one operation.

    Args:
        program: The inline program; None for an operation that runs none.
        on_event: Called with each event, in order, in a thread of the server.

    Example:
        >>> with Host(None, print) as host:
        ...     host.arguments()[0]
        '--event-log'
    """

    def __init__(self, program: PulumiFn | None, on_event: OnEvent) -> None:
        self._language = Language(program) if program is not None else None
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine-host")
        self._server = grpc.server(self._pool, options=GRPC_OPTIONS)
        events_pb2_grpc.add_EventsServicer_to_server(_Events(on_event), self._server)
        if self._language is not None:
            load_provider_sdk()
            language_pb2_grpc.add_LanguageRuntimeServicer_to_server(self._language, self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Host:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._language is not None:
            self._language.abandon()
        self._server.stop(grace=None).wait()
        # A program that computes something of its own still has to come to its end; it is not waited for.
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def program_error(self) -> BaseException | None:
        """What the program raised, if it did."""
        return self._language.error if self._language is not None else None

    def arguments(self) -> list[str]:
        """The options that point a CLI process to this server."""
        address = f"127.0.0.1:{self._port}"
        words = ["--event-log", f"tcp://{address}"]
        if self._language is not None:
            words += [f"--client={address}", "--exec-kind", "auto.inline"]
        else:
            words += ["--exec-kind", "auto.local"]
        return words
