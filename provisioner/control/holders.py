"""Whether the holder of a lock lives when it is a process on another host.

A server that was killed leaves its lock, and its successor has another host
name: without a look at that host's sign of life, or at its pod, every such
stack stays locked for ever. Only hosts of which something is known are judged.
"""

from __future__ import annotations

import threading
import time as clocks
from collections.abc import Callable
from datetime import timedelta

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import PODS, Call
from provisioner.cluster.leases import LEASES, parse_lease
from provisioner.cluster.parse import items, mapping, text, time
from provisioner.cluster.transport import NotFoundError
from provisioner.control.heartbeat import lease_name
from provisioner.engine import Lock
from provisioner.errors import ProvisionerError

# A container's start and a lock are written by different clocks.
_SLACK = timedelta(seconds=5)

Judge = Callable[[Lock], bool | None]
"""Says whether the holder of a lock lives; None when it cannot know."""


def first_known(*judges: Judge) -> Judge:
    """The answer of the first who knows.

    Args:
        judges: In order.
    """

    def alive(lock: Lock) -> bool | None:
        return next((answer for judge in judges if (answer := judge(lock)) is not None), None)

    return alive


class LeaseHolders:
    """Judges holders of locks by the heartbeat of their host.

    Clocks of machines differ, so a Lease is never judged by the time that
    stands in it: a host is dead when its Lease has not changed for its whole
    duration by the clock of this process. The first look can only say that
    nothing is known.

    Args:
        client: The cluster with the Leases.
        namespace: Where they are.
        monotonic: A clock that never goes back, in seconds.
    """

    def __init__(
        self, client: ClusterClient, namespace: str, monotonic: Callable[[], float] = clocks.monotonic
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, float]] = {}

    def alive(self, lock: Lock) -> bool | None:
        """Whether the holder of a lock lives.

        Args:
            lock: On any stack.

        Returns:
            None when that cannot be known, or not yet.
        """
        try:
            lease = parse_lease(
                self._client.transport.json(Call("get", LEASES, self._namespace, lease_name(lock.host)))
            )
        except ProvisionerError:
            # None at all: it ended in good order, or never gave a sign. Not to be reached: nothing is known.
            return None
        now = self._monotonic()
        with self._lock:
            version, since = self._seen.get(lock.host, ("", now))
            if version != lease.version:
                self._seen[lock.host] = (lease.version, now)
                return True if version else None
        return False if lease.duration > 0 and now - since > lease.duration else None


class PodHolders:
    """Judges holders of locks by their pods.

    Args:
        client: The cluster that they run in.
        where: `NAMESPACE/PREFIX` of the pods' names; "" when no holder is a pod.
    """

    def __init__(self, client: ClusterClient, where: str) -> None:
        self._client = client
        self._namespace, _, self._prefix = where.partition("/")

    def alive(self, lock: Lock) -> bool | None:
        """Whether the holder of a lock lives.

        Args:
            lock: On any stack.

        Returns:
            None when that cannot be known.
        """
        if not self._prefix or not lock.host.startswith(self._prefix):
            return None
        try:
            pod = self._client.transport.json(Call("get", PODS, self._namespace, lock.host))
        except NotFoundError:
            return False
        except ProvisionerError:
            return None
        # A container that started after the lock was taken has not taken it.
        for container in items(mapping(pod, "status"), "containerStatuses"):
            started = time(mapping(mapping(container, "state"), "running"), "startedAt")
            if started is not None and started <= lock.time + _SLACK:
                return True
        return text(mapping(pod, "status"), "phase") not in ("Running", "Succeeded", "Failed")
