"""The process `provisioner gateway`: ports, health, signals, and a stop that loses no call.

On SIGTERM the health service says NOT_SERVING, so that no new connection comes
here, and calls are served on until none has been running for a moment or the
drain timeout is over. Only then are the ports closed: gRPC cancels the calls
that reach a server which is shutting down, and a CreateTask lost that way costs
its task an attempt. Connections are renewed so often that callers have moved
elsewhere within the drain timeout. A second signal ends everything at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import start_http_server

from provisioner.certificates import ServerTls, server_credentials
from provisioner.errors import PermanentError
from provisioner.registry.calls import HOP_HEADER
from provisioner.registry.channels import MAX_MESSAGE_BYTES, ChannelPool
from provisioner.registry.config import Tls
from provisioner.registry.forward import CONNECT_WAIT, Forwarder
from provisioner.registry.gateway import Gateway
from provisioner.registry.metrics import Metrics
from provisioner.registry.source import ConfigSource
from provisioner.registry.tls import client_credentials
from provisioner.registry.watch import STALE_AFTER, Discovery, Watch
from provisioner.registry.wire import SERVICES

log = structlog.get_logger(__name__)

DEFAULT_NAME = "provisioner-gateway"
_AGE_SHARE = 0.6  # of the drain timeout; gRPC spreads ages by a tenth
_QUIET = 0.5  # seconds without a call after which nobody is taken to be coming
_LAST_ANSWER = 1.0  # seconds for an answer that is complete to leave


@dataclass(frozen=True)
class GatewayOptions:
    """How the gateway is run.

    Attributes:
        config: Configuration file or folder, or None when agents are
            discovered only.
        host: Address to listen on.
        port: gRPC port; 0 chooses a free one.
        metrics_port: Port of the metrics, or None for no metrics; 0 chooses.
        tls: Certificate of the port; None for no TLS.
        agent_tls: Files for connections to agents that name none themselves.
        stale_after: Seconds for which a silent agent keeps its entries.
        poll_interval: Seconds between rounds, or None for the configuration's.
        drain_timeout: Seconds that calls in flight get after SIGTERM.
        connect_wait: Seconds that CreateTask waits for a connection.
        max_message_bytes: Largest message; -1 for no limit.
        name: By which calls that come back are known.
        discovery: Finds further agents.
    """

    config: Path | None
    host: str = "0.0.0.0"  # noqa: S104
    port: int = 8000
    metrics_port: int | None = 9090
    tls: ServerTls | None = None
    agent_tls: Tls = field(default_factory=Tls)
    stale_after: float = STALE_AFTER
    poll_interval: float | None = None
    drain_timeout: float = 30.0
    connect_wait: float = CONNECT_WAIT
    max_message_bytes: int = MAX_MESSAGE_BYTES
    name: str = DEFAULT_NAME
    discovery: Discovery | None = None


@dataclass(frozen=True)
class Addresses:
    """Where the gateway listens.

    Attributes:
        host: The address.
        port: The gRPC port.
        metrics_port: The port of the metrics, or None.
    """

    host: str
    port: int
    metrics_port: int | None


class _Health:
    """What the health service says of all services at once."""

    def __init__(self) -> None:
        self.servicer = health.aio.HealthServicer()
        self._ending = False

    async def end(self) -> None:
        """Say NOT_SERVING from now on, whatever is set later."""
        self._ending = True
        await self.set(False)

    async def set(self, serving: bool) -> None:
        """Say whether it serves."""
        answers = health_pb2.HealthCheckResponse
        status = answers.SERVING if serving and not self._ending else answers.NOT_SERVING
        for service in ("", *SERVICES):
            await self.servicer.set(service, status)


def _listen(server: grpc.aio.Server, options: GatewayOptions) -> int:
    host = f"[{options.host}]" if ":" in options.host and not options.host.startswith("[") else options.host
    address = f"{host}:{options.port}"
    try:
        if options.tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, server_credentials(options.tls)))
    except RuntimeError as error:
        raise PermanentError(
            f"cannot listen on {address}", reason="PortInUse", hint="choose another address with --host and --port"
        ) from error


def _serve_metrics(options: GatewayOptions, metrics: Metrics) -> int | None:
    if options.metrics_port is None:
        return None
    try:
        http, _thread = start_http_server(options.metrics_port, options.host, registry=metrics.registry)
    except OSError as error:
        raise PermanentError(
            f"cannot listen on {options.host}:{options.metrics_port} for metrics: {error.strerror}",
            reason="PortInUse",
            hint="choose another port with --metrics-port",
        ) from error
    return int(http.server_port)


async def serve(options: GatewayOptions, *, started: Callable[[Addresses], None] = lambda _addresses: None) -> None:
    """Run the gateway until SIGTERM or SIGINT.

    Args:
        options: How.
        started: Called once it serves.

    Raises:
        ProvisionerError: It cannot start.
    """
    metrics = Metrics()
    source = ConfigSource(options.config, discovering=options.discovery is not None)
    client_credentials(options.agent_tls)  # a wrong file is said now, not at the first call
    pool = ChannelPool(default_tls=options.agent_tls, max_message_bytes=options.max_message_bytes)
    watch = Watch(
        source,
        pool,
        metrics,
        stale_after=options.stale_after,
        poll_interval=options.poll_interval,
        discovery=options.discovery,
        metadata=((HOP_HEADER, options.name),),
    )
    forwarder = Forwarder(lambda: watch.table, pool, metrics, name=options.name, connect_wait=options.connect_wait)
    server = grpc.aio.server(
        options=[
            # Without this, a second gateway on the same port would share it in silence.
            ("grpc.so_reuseport", 0),
            ("grpc.max_connection_age_ms", max(1000, int(options.drain_timeout * _AGE_SHARE * 1000))),
            ("grpc.max_receive_message_length", options.max_message_bytes),
            ("grpc.max_send_message_length", -1),
        ]
    )
    gateway = Gateway(forwarder, lambda: watch.table, name=options.name)
    server.add_generic_rpc_handlers((gateway,))
    state = _Health()
    await state.set(False)
    health_pb2_grpc.add_HealthServicer_to_server(state.servicer, server)
    addresses = Addresses(options.host, _listen(server, options), _serve_metrics(options, metrics))

    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: hurry.set() if stop.is_set() else stop.set())
    loop.add_signal_handler(signal.SIGHUP, watch.reload)
    await server.start()
    work = asyncio.create_task(_work(watch, gateway, state, addresses, options, started))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _drain(server, state, gateway, options.drain_timeout, hurry)
        for task in (work, stopping):
            task.cancel()
        await pool.close()
    with suppress(asyncio.CancelledError):
        await work  # if it has failed, that is why the gateway ends


async def _work(
    watch: Watch,
    gateway: Gateway,
    state: _Health,
    addresses: Addresses,
    options: GatewayOptions,
    started: Callable[[Addresses], None],
) -> None:
    """Ask all agents, open the gateway, and go on asking."""
    await watch.round()
    gateway.open()
    await state.set(True)
    log.info(
        "gateway serves",
        host=addresses.host,
        port=addresses.port,
        metrics_port=addresses.metrics_port,
        name=options.name,
        tls=options.tls is not None,
    )
    started(addresses)
    await watch.run()


async def _drain(server: grpc.aio.Server, state: _Health, gateway: Gateway, grace: float, hurry: asyncio.Event) -> None:
    log.info("gateway stops", drain_timeout=grace)
    await state.end()
    ends = (asyncio.create_task(hurry.wait()), asyncio.create_task(gateway.wait_quiet(_QUIET)))
    await asyncio.wait(ends, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    quiet = ends[1].done()
    for end in ends:
        end.cancel()
    # Whoever watches the health service would hold a longer stop up to its end.
    await server.stop(_LAST_ANSWER if quiet else 0)
    log.info("gateway stopped", drained=quiet, calls_cut_off=0 if quiet else gateway.active)
