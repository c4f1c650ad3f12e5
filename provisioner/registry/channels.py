"""One channel per endpoint, replaced without disturbing the calls on it.

A channel that is no longer wanted (its agent was removed or its certificate
renewed) must not be closed under a call that is still running, so each use is
counted and a retired channel is closed by the last one that leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import grpc.aio
import structlog

from provisioner import __version__
from provisioner.certificates import Stamp, stamp_of
from provisioner.registry.config import Deployment, Tls
from provisioner.registry.tls import client_credentials

log = structlog.get_logger(__name__)

MAX_MESSAGE_BYTES = 64 * 2**20
"""Largest message taken from either side, unless set otherwise."""

_OPTIONS = (
    # An agent that is back must be found within seconds; gRPC would wait up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.dns_min_time_between_resolutions_ms", 2000),
    # A renewed channel must open a connection of its own, not share the one that hangs.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.primary_user_agent", f"data-service-provisioner/{__version__}"),
)
_Key = tuple[str, bool, str, Tls]


@dataclass(eq=False)
class _Link:
    """A channel and the number of calls on it."""

    channel: grpc.aio.Channel
    stamp: Stamp
    users: int = 0
    retired: bool = False


class ChannelPool:
    """The channels to all agents.

    All methods must be called in one event loop.

    Args:
        default_tls: Files for agents whose own `tls` names none.
        max_message_bytes: Largest message that is taken from an agent; -1 for
            no limit.
    """

    def __init__(self, *, default_tls: Tls | None = None, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._default_tls = default_tls or Tls()
        self._max_message_bytes = max_message_bytes
        self._links: dict[_Key, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def _tls(self, deployment: Deployment) -> Tls:
        own, common = deployment.tls, self._default_tls
        pair = own if own.cert else common
        return replace(own, ca=own.ca or common.ca, cert=pair.cert, key=pair.key)

    def _key(self, deployment: Deployment) -> _Key:
        return deployment.endpoint, deployment.insecure, deployment.service_config, self._tls(deployment)

    def _open(self, deployment: Deployment) -> _Link:
        tls = self._tls(deployment)
        options: list[tuple[str, object]] = [
            *_OPTIONS,
            ("grpc.max_receive_message_length", self._max_message_bytes),
        ]
        if deployment.service_config:
            options.append(("grpc.service_config", deployment.service_config))
        if deployment.insecure:
            return _Link(grpc.aio.insecure_channel(deployment.endpoint, options=options), ())
        if tls.server_name:
            options.append(("grpc.ssl_target_name_override", tls.server_name))
        stamp = stamp_of(tls.files)
        channel = grpc.aio.secure_channel(deployment.endpoint, client_credentials(tls), options=options)
        return _Link(channel, stamp)

    def _link(self, deployment: Deployment) -> _Link:
        key = self._key(deployment)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = self._open(deployment)
        return link

    @contextmanager
    def lease(self, deployment: Deployment) -> Iterator[grpc.aio.Channel]:
        """Use the channel of a deployment for one call; it stays open until the block ends.

        Raises:
            PermanentError: A certificate file cannot be read.
        """
        link = self._link(deployment)
        link.users += 1
        try:
            yield link.channel
        finally:
            link.users -= 1
            self._close_if_done(link)

    def renew(self, deployment: Deployment) -> None:
        """Let new calls use a new connection; those on the old one go on.

        For a connection that does not answer: the peer may be gone without a
        word, and TCP alone would notice after a quarter of an hour.
        """
        self._retire(self._key(deployment))

    def refresh(self, deployments: Iterable[Deployment]) -> None:
        """Keep the channels of just these; renew those whose certificate files have changed."""
        wanted = {self._key(deployment) for deployment in deployments}
        for key in list(self._links):
            if key not in wanted or (not key[1] and stamp_of(key[3].files) != self._links[key].stamp):
                self._retire(key)

    def _retire(self, key: _Key) -> None:
        link = self._links.pop(key, None)
        if link is not None:
            link.retired = True
            self._close_if_done(link)

    def _close_if_done(self, link: _Link) -> None:
        if link.retired and link.users == 0:
            task = asyncio.get_running_loop().create_task(link.channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every channel, with the calls still on them."""
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.channel.close() for link in links), *self._closing)
