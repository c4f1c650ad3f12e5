"""Whether the holder of a lock lives when it is a process in another pod.

A server that was killed leaves its lock, and its successor has another host
name: without a look at the pods every such stack stays locked for ever. Only
hosts that are known to be pods are judged, by the setting `lock_pods`.
"""

from __future__ import annotations

from datetime import timedelta

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import PODS, Call
from provisioner.cluster.parse import items, mapping, text, time
from provisioner.cluster.transport import NotFoundError
from provisioner.engine import Lock
from provisioner.errors import ProvisionerError

# A container's start and a lock are written by different clocks.
_SLACK = timedelta(seconds=5)


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
