"""Runs an inline program for the engine, inside this process.

The SDK's own `LanguageServer` does the same for its `Stack.up`, made for one
program in a script's life. In a server it does harm: it silences asyncio's
logger for good, leaves tasks behind when the engine is killed, and reduces a
program's exception to text. This one stands on the same functions of
`pulumi.runtime` and cleans up after each program.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import structlog
from google.protobuf.empty_pb2 import Empty
from pulumi import RunError
from pulumi.automation import PulumiFn
from pulumi.runtime import Settings, configure, run_in_stack, set_all_config
from pulumi.runtime.proto import (
    LanguageRuntimeServicer,
    engine_pb2_grpc,
    language_pb2,
    plugin_pb2,
    resource_pb2_grpc,
)

# A checkpoint's worth of properties can be in one message; 4 MiB is gRPC's default.
GRPC_OPTIONS = [("grpc.max_receive_message_length", 400 * 1024 * 1024)]
# Each registration waits in a thread for the engine's answer.
_THREADS = 32
_CANCELLATIONS = 20

_log = structlog.get_logger(__name__)


class Language(LanguageRuntimeServicer):
    """The language runtime of one operation.

    Args:
        program: The inline program.

    Attributes:
        error: What the program raised, if it did.
    """

    def __init__(self, program: PulumiFn) -> None:
        self._program = program
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._abandoned = asyncio.Event()

    # The names below are those of the RPCs.

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        """Greet the engine."""
        return language_pb2.LanguageHandshakeResponse()

    def GetRequiredPlugins(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        """Name no plugins in advance: the engine asks for each at its first resource."""
        return language_pb2.GetRequiredPluginsResponse()

    def GetRequiredPackages(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        """Name no packages in advance."""
        return language_pb2.GetRequiredPackagesResponse()

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        """Say nothing of a version: this is no plugin of its own."""
        return plugin_pb2.PluginInfo()

    def About(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        """Name the interpreter."""
        version = ".".join(str(part) for part in sys.version_info[:3])
        return language_pb2.AboutResponse(executable=sys.executable, version=version)

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        """Do nothing: a program ends by itself once the engine refuses its registrations."""
        return Empty()

    def Run(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        """Run the program against the engine's resource monitor."""
        # The SDK keeps what belongs to one program in context variables.
        return contextvars.copy_context().run(self._run, request)

    def _run(self, request: Any) -> Any:
        # Channels of our own, to be closed: one that is left open to an engine that was killed blocks the exit of the
        # whole process. Closing them also ends every call that still waits for an answer.
        with (
            grpc.insecure_channel(request.monitor_address, options=GRPC_OPTIONS) as monitor,
            grpc.insecure_channel(request.args[0], options=GRPC_OPTIONS) as engine,
        ):
            configure(
                Settings(
                    project=request.project,
                    monitor=resource_pb2_grpc.ResourceMonitorStub(monitor),
                    engine=engine_pb2_grpc.EngineStub(engine),
                    stack=request.stack,
                    parallel=request.parallel,
                    dry_run=request.dryRun,
                    organization=request.organization or "organization",
                )
            )
            if request.config:
                set_all_config(request.config, request.configSecretKeys or None)
            return self._answer()

    def _answer(self) -> Any:
        try:
            self._run_to_its_end()
        except Exception as error:  # noqa: BLE001 - raised again in the thread that wants the operation
            if _is_of_engine(error):
                # It said no to a registration, or is gone; why is among its own diagnostics.
                return language_pb2.RunResponse(error=f"the program was stopped: {_told(error)}")
            self.error = error
            return language_pb2.RunResponse(error=f"the program failed: {type(error).__name__}: {error}")
        return language_pb2.RunResponse()

    def _run_to_its_end(self) -> None:
        loop = asyncio.new_event_loop()
        executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine-program")
        loop.set_exception_handler(_left_over)
        loop.set_default_executor(executor)
        with self._lock:
            self._loop = loop
        try:
            loop.run_until_complete(self._supervise())
        finally:
            with self._lock:
                self._loop = None
            _finish_tasks(loop)
            executor.shutdown(wait=False, cancel_futures=True)
            loop.close()

    async def _supervise(self) -> None:
        program = asyncio.ensure_future(run_in_stack(self._program))
        abandoned = asyncio.ensure_future(self._abandoned.wait())
        await asyncio.wait({program, abandoned}, return_when=asyncio.FIRST_COMPLETED)
        if not program.done():
            raise RunError("the engine is gone")
        await program

    def abandon(self) -> None:
        """End a program whose engine is gone.

        Such a program may wait for ever: for the outputs of resources whose
        registration nobody will answer.
        """
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._abandoned.set)


def _finish_tasks(loop: asyncio.AbstractEventLoop) -> None:
    # The SDK's coroutines swallow a cancellation to clean up, and wait again while they do: each takes a few.
    for _ in range(_CANCELLATIONS):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=0.1))


def _is_of_engine(error: Exception) -> bool:
    """Whether a program was ended by what the engine answered, such as that its provider has died."""
    # The SDK turns most of its answers into a plain Exception, raised while it handles the call's error.
    own = isinstance(error.__context__, grpc.RpcError) and type(error) is Exception
    return own or isinstance(error, RunError | grpc.RpcError)


def _told(error: Exception) -> str:
    return str(error.details()) if isinstance(error, grpc.RpcError) else str(error)


def _left_over(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # A program that was stopped leaves futures that nobody asks any more, noticed whenever they are collected.
    _log.debug("left over by a program", what=context.get("message"), error=str(context.get("exception")))
