"""A sign of life of each host that runs operations: a Lease that is renewed while its server lives.

A server that was killed leaves the locks of its operations in the backend,
and a server on another host cannot look at its processes. It looks at this
Lease instead (see `holders`). For that to be safe, who cannot renew its Lease
gives up in time: it starts nothing more and cancels what runs, and that is
over before the others count it as dead.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import Call
from provisioner.cluster.leases import LEASES, lease_manifest, micro_time, parse_lease
from provisioner.cluster.parse import items
from provisioner.cluster.transport import NotFoundError
from provisioner.errors import PermanentError, ProvisionerError, TransientError
from provisioner.identity import PREFIX, dns_name

_log = structlog.get_logger(__name__)

LABEL_HEARTBEAT = f"{PREFIX}/heartbeat"
# A host that has been dead for so long has no lock left that anybody waits for.
_FORGOTTEN = timedelta(days=1)
_RENEWALS = 6
_OURS: dict[str, str | int] = {"labelSelector": LABEL_HEARTBEAT, "limit": 500}


def lease_name(host: str) -> str:
    """The name of a host's Lease.

    Args:
        host: As locks name it.
    """
    return dns_name(f"heartbeat-{host}", length=63)


class Heartbeat:
    """Shows that this host lives.

    Args:
        client: The cluster with the Leases.
        namespace: Where they are.
        seconds: For how long one renewal counts.
        grace: Seconds that a cancelled operation may take to end; at most a
            third of `seconds`.
        lost: Called when the Lease could not be renewed in time: to cancel
            what runs.
        host: Name of this host, as locks name it.
        monotonic: A clock that never goes back, in seconds.
    """

    def __init__(
        self,
        client: ClusterClient,
        namespace: str,
        *,
        seconds: float,
        grace: float,
        lost: Callable[[], None],
        host: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._seconds = seconds
        # The rest is for the cancelled operations to end, and for clocks that run differently.
        self._patience = seconds - grace - seconds / _RENEWALS
        self._lost = lost
        self._host = host or socket.gethostname()
        self._monotonic = monotonic
        self._renewed_at: float | None = None
        self._began = ""
        self._given_up = False
        self._error: ProvisionerError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Show it from now on; the first time before this returns."""
        self.beat()
        self._thread.start()

    def stop(self, *, clean: bool) -> None:
        """Show it no more.

        Args:
            clean: Whether no lock is left, so that nobody has to judge this
                host; the Lease is taken away then, and runs out otherwise.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if not clean:
            return
        try:
            self._client.transport.json(Call("delete", LEASES, self._namespace, lease_name(self._host)), body={})
        except ProvisionerError as error:
            _log.debug("the heartbeat's Lease was not taken away", error=error.message)

    def require(self) -> None:
        """Refuse to begin what others might take for abandoned.

        Who may have no Lease at all does without: others never count it as dead.

        Raises:
            TransientError: The Lease was not renewed lately (reason `HeartbeatLost`).
        """
        never = self._renewed_at is None
        if (never and isinstance(self._error, PermanentError)) or (not never and self._age() <= self._patience):
            return
        why = f": {self._error.message}" if self._error is not None else ""
        raise TransientError(
            f"this server cannot renew its Lease {self._namespace}/{lease_name(self._host)}{why}",
            reason="HeartbeatLost",
            hint=self._error.hint if self._error is not None else "",
        )

    def beat(self) -> None:
        """Renew it once, and give up if that has failed for too long."""
        try:
            self._renew()
        except ProvisionerError as error:
            self._failed(error)
        else:
            self._renewed_at, self._given_up, self._error = self._monotonic(), False, None

    def _age(self) -> float:
        return self._monotonic() - (self._renewed_at or 0.0)

    def _failed(self, error: ProvisionerError) -> None:
        known, self._error = self._error, error
        if known is None or known.reason != error.reason:
            # Who may not, does without; who cannot, will stop its work.
            tell = _log.info if isinstance(error, PermanentError) else _log.warning
            tell("no sign of life can be given", error=error.message, hint=error.hint, lease=lease_name(self._host))
        if self._renewed_at is not None and not self._given_up and self._age() > self._patience:
            self._given_up = True
            self._lost()

    def _run(self) -> None:
        self._forget_the_dead()
        while not self._stop.wait(self._seconds / _RENEWALS):
            self.beat()

    def _renew(self) -> None:
        name, now = lease_name(self._host), micro_time(datetime.now(UTC))
        self._began = self._began or now
        spec = {
            "holderIdentity": self._host,
            "leaseDurationSeconds": round(self._seconds),
            "acquireTime": self._began,
            "renewTime": now,
        }
        try:
            self._client.transport.json(Call("patch", LEASES, self._namespace, name), body={"spec": spec})
        except NotFoundError:
            document = lease_manifest(self._namespace, name, spec, labels={LABEL_HEARTBEAT: "true"})
            self._client.transport.json(Call("create", LEASES, self._namespace), body=document)

    def _forget_the_dead(self) -> None:
        """Pods come with a new name each, and the Leases of those that were killed would pile up."""
        limit = datetime.now(UTC) - _FORGOTTEN
        try:
            page = self._client.transport.json(Call("list", LEASES, self._namespace), query=_OURS)
            for lease in map(parse_lease, items(page, "items")):
                if lease.expires is not None and lease.expires < limit:
                    body = {"preconditions": {"uid": lease.uid, "resourceVersion": lease.version}}
                    self._client.transport.json(Call("delete", LEASES, self._namespace, lease.name), body=body)
        except ProvisionerError as error:
            _log.debug("old heartbeats stay", error=error.message)
