"""One of several replicas is elected, by a Lease, as client-go's leader election does it.

Clocks of machines differ, so a Lease is never judged by the time that stands
in it: who waits takes over when the Lease has not changed for its duration by
the clock of who waits. Who leads and cannot renew gives up well before that.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import Call
from provisioner.cluster.leases import LEASES, Lease, lease_manifest, micro_time, parse_lease
from provisioner.cluster.transport import NotFoundError
from provisioner.errors import ProvisionerError

_log = structlog.get_logger(__name__)


class Elector:
    """Takes part in an election.

    Args:
        client: The cluster with the Lease.
        namespace: Namespace of the Lease.
        name: Name of the Lease.
        seconds: Duration of the Lease: a leader that is silent for so long is replaced.
        identity: Name of this replica; made up by default.
        monotonic: A clock that never goes back, in seconds.
    """

    def __init__(
        self,
        client: ClusterClient,
        namespace: str,
        name: str,
        *,
        seconds: int,
        identity: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._seconds = seconds
        self._monotonic = monotonic
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
        self._seen_version = ""
        self._seen_at = 0.0
        self._renewed_at: float | None = None

    @property
    def retry_seconds(self) -> float:
        """How long to wait between two steps."""
        return self._seconds / 6

    @property
    def leading(self) -> bool:
        """Whether this replica leads; it ends by itself when renewing fails for too long."""
        return self._renewed_at is not None and self._monotonic() - self._renewed_at < self._seconds * 2 / 3

    def step(self) -> bool:
        """Take or renew the Lease, if that is possible now.

        Returns:
            Whether this replica leads.
        """
        try:
            if self._try():
                self._renewed_at = self._monotonic()
            else:
                self._renewed_at = None
        except ProvisionerError as error:
            _log.warning("the election's Lease cannot be reached", lease=self._name, error=error.message)
        return self.leading

    def release(self) -> None:
        """Give the Lease back, so that another replica need not wait for it to expire."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            lease = self._get()
            if lease is not None and lease.holder == self.identity:
                self._put(lease, holder="", transitions=lease.transitions)
        except ProvisionerError as error:
            _log.warning("the election's Lease could not be given back", lease=self._name, error=error.message)

    def hold(self, stop: threading.Event, on_lost: Callable[[], None]) -> None:
        """Renew until told to stop, or until the Lease is lost.

        Args:
            stop: Ends it.
            on_lost: Called once if the Lease is lost.
        """
        while not stop.wait(self.retry_seconds):
            if not self.step():
                on_lost()
                return

    def _try(self) -> bool:
        lease = self._get()
        if lease is None:
            return self._create()
        if lease.version != self._seen_version:
            self._seen_version, self._seen_at = lease.version, self._monotonic()
        mine = lease.holder == self.identity
        expired = self._monotonic() - self._seen_at >= (lease.duration or self._seconds)
        if lease.holder and not mine and not expired:
            return False
        return self._put(lease, holder=self.identity, transitions=lease.transitions + (not mine))

    def _get(self) -> Lease | None:
        try:
            return parse_lease(self._client.transport.json(Call("get", LEASES, self._namespace, self._name)))
        except NotFoundError:
            return None

    def _create(self) -> bool:
        try:
            self._client.transport.json(
                Call("create", LEASES, self._namespace), body=self._document(self.identity, 0, version="")
            )
        except ProvisionerError as error:
            if error.reason == "AlreadyExists":
                return False
            raise
        return True

    def _put(self, lease: Lease, *, holder: str, transitions: int) -> bool:
        document = self._document(holder, transitions, version=lease.version)
        try:
            found = self._client.transport.json(Call("update", LEASES, self._namespace, self._name), body=document)
        except ProvisionerError as error:
            if error.reason in ("Conflict", "NotFound"):
                return False
            raise
        self._seen_version, self._seen_at = parse_lease(found).version, self._monotonic()
        return True

    def _document(self, holder: str, transitions: int, *, version: str) -> dict[str, Any]:
        now = micro_time(datetime.now(UTC))
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": self._seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        seen = {"resourceVersion": version} if version else {}
        return lease_manifest(self._namespace, self._name, spec, **seen)
