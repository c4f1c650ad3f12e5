"""The server process: flytekit's own services, with health that is true and an end that loses nothing.

`pyflyte serve connector` serves the same, but it says SERVING from its first
moment, ends in the middle of a request, and shares its port silently with a
second server. Here:

- The port is open before control is ready; health says NOT_SERVING until then.
- SIGTERM: health says NOT_SERVING first, so that no new call is sent here.
  Calls that come all the same are answered from memory while running
  operations finish or are cancelled; then the port is closed.
- A second signal cancels at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from wsgiref.simple_server import WSGIServer

import grpc
import structlog
from flyteidl.service import agent_pb2
from flyteidl.service.agent_pb2_grpc import (
    add_AgentMetadataServiceServicer_to_server,
    add_AsyncAgentServiceServicer_to_server,
    add_SyncAgentServiceServicer_to_server,
)
from flytekit.extend.backend.connector_service import ConnectorMetadataService, SyncConnectorService
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha import reflection
from prometheus_client import start_http_server

from provisioner.errors import PermanentError
from provisioner.flyte import answer, guard
from provisioner.flyte.calls import THREADS, Calls
from provisioner.flyte.guard import TokenGuard
from provisioner.flyte.runtime import RUNTIME, Runtime
from provisioner.settings import Settings

log = structlog.get_logger(__name__)

_HEALTH_SECONDS = 0.2
# What a call that has begun needs at most once nothing runs any more.
_LAST_CALLS_SECONDS = 2.0
# A program of the engine computes in a thread of this process, and an answer needs the interpreter several times:
# with Python's own 5 ms it would wait as long each time.
_SWITCH_SECONDS = 0.0005
_SERVICES = ("", *sorted(service.full_name for service in agent_pb2.DESCRIPTOR.services_by_name.values()))


@dataclass(frozen=True)
class Addresses:
    """Where the server listens.

    Attributes:
        host: Address.
        port: gRPC port.
        metrics_port: Prometheus port.
    """

    host: str
    port: int
    metrics_port: int


class Server:
    """One server. Use it inside one event loop: `start`, then `run`.

    Args:
        settings: Address, ports and time to drain.
        runtime: Gives the control.
    """

    def __init__(self, settings: Settings, runtime: Runtime = RUNTIME) -> None:
        self._settings = settings
        self._runtime = runtime
        self._signals: asyncio.Queue[str] = asyncio.Queue()
        # Two servers that share a port would each get a part of the calls, and nobody would notice.
        guards = [TokenGuard(settings.token_file)] if settings.token_file is not None else []
        self._grpc = grpc.aio.server(interceptors=guards, options=[("grpc.so_reuseport", 0)])
        self._credentials = guard.credentials(settings)
        self._health = HealthServicer()
        self._metrics: WSGIServer | None = None

    async def start(self) -> Addresses:
        """Open both ports.

        Raises:
            PermanentError: A port is taken, or may not be used.
        """
        host, port = self._settings.host, self._settings.port
        _check_port(host, port)
        add_AsyncAgentServiceServicer_to_server(Calls(), self._grpc)
        add_SyncAgentServiceServicer_to_server(SyncConnectorService(), self._grpc)
        add_AgentMetadataServiceServicer_to_server(ConnectorMetadataService(), self._grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        reflection.enable_server_reflection([*_SERVICES[1:], HEALTH, reflection.SERVICE_NAME], self._grpc)
        await self._say(serving=False)
        await answer.prepare()
        try:
            port = self._listen(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise _port_error("port", host, port, str(error)) from error
        self._metrics = _metrics_server(host, self._settings.metrics_port)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="call"))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number.name)
        await self._grpc.start()
        return Addresses(host, port, self._metrics.server_port)

    def _listen(self, address: str) -> int:
        if self._credentials is None:
            return int(self._grpc.add_insecure_port(address))
        return int(self._grpc.add_secure_port(address, self._credentials))

    async def run(self) -> bool:
        """Serve until a signal comes, then drain.

        Returns:
            Whether everything that ran had ended, so that no lock is left.

        Raises:
            ProvisionerError: Control cannot be started with these settings.
        """
        health = asyncio.create_task(self._watch_health())
        stopping = asyncio.create_task(self._signals.get())
        starting = asyncio.create_task(asyncio.to_thread(self._runtime.start))
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            log.info("draining", signal=await stopping, seconds=self._settings.drain_timeout)
        finally:
            health.cancel()
            await self._health.enter_graceful_shutdown()
            clean = await self._drain()
            await self._grpc.stop(_LAST_CALLS_SECONDS)
            if self._metrics is not None:
                self._metrics.shutdown()
            log.info("stopped", clean=clean)
        return clean

    async def _drain(self) -> bool:
        again = asyncio.create_task(self._signals.get())
        drained = asyncio.create_task(asyncio.to_thread(self._runtime.stop, self._settings.drain_timeout))
        await asyncio.wait((again, drained), return_when=asyncio.FIRST_COMPLETED)
        if drained.done():
            again.cancel()
            return drained.result()
        log.warning("cancelling what runs", signal=again.result())
        return await asyncio.to_thread(self._runtime.stop, self._settings.cancel_grace)

    async def _watch_health(self) -> None:
        known = False
        while True:
            ready = self._runtime.ready()
            if ready != known:
                log.info("health", serving=ready)
                await self._say(serving=ready)
                known = ready
            await asyncio.sleep(_HEALTH_SECONDS)

    async def _say(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for service in _SERVICES:
            await self._health.set(service, status.SERVING if serving else status.NOT_SERVING)


def _check_port(host: str, port: int) -> None:
    # gRPC says only that it failed; the operating system says why.
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        raise _port_error("port", host, port, _why(error)) from error


def _metrics_server(host: str, port: int) -> WSGIServer:
    try:
        server, _ = start_http_server(port, addr=host)
    except OSError as error:
        raise _port_error("metrics port", host, port, _why(error)) from error
    return server


def _why(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)


def _port_error(what: str, host: str, port: int, why: str) -> PermanentError:
    setting = what.upper().replace(" ", "_")
    return PermanentError(
        f"{what} {port} on {host} cannot be opened: {why}",
        reason="PortNotAvailable",
        hint=f"end what uses it, or set PROVISIONER_{setting}; 0 chooses a free one",
    )


def serve(settings: Settings, announce: Callable[[Addresses], None], runtime: Runtime = RUNTIME) -> bool:
    """Serve until SIGTERM or SIGINT, then drain.

    Args:
        settings: Address, ports, time to drain.
        announce: Told the addresses once both ports are open.
        runtime: Gives the control.

    Returns:
        Whether everything that ran had ended.

    Raises:
        ProvisionerError: A port is taken, or control cannot be started.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)

    async def run() -> bool:
        server = Server(settings, runtime)
        announce(await server.start())
        return await server.run()

    return asyncio.run(run())
