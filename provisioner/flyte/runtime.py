"""The control of this process: made and started at its first use, and once.

flytekit imports this package whenever it is imported itself, in every process
of every user, so importing must start nothing and read no settings. The
server starts it explicitly; `pyflyte serve connector` and a local run reach
it with their first request.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import structlog

from provisioner import logs, settings
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Status
from provisioner.errors import PermanentError, ProvisionerError, TransientError, UsageError
from provisioner.identity import Identity, User

if TYPE_CHECKING:
    # The cluster's side takes long to import, and every process that uses flytekit imports this module.
    from provisioner.cluster import Snapshot
    from provisioner.control.replica_logs import LogPage

log = structlog.get_logger(__name__)


class Sharing(Protocol):
    """What the Flyte side needs of `provisioner.control.sharing.Sharing`."""

    def attached(self, namespace: str, service: str, user: User | None) -> Status:
        """How a service is that somebody else created."""

    def identity(self, namespace: str, service: str) -> Identity | None:
        """Whose a service is, by its name."""

    def release(
        self, identity: Identity, user: User, *, request: ServiceRequest | None = None, whole_execution: bool = False
    ) -> None:
        """End a use of a service."""


class ReplicaLogs(Protocol):
    """What the Flyte side needs of `provisioner.control.replica_logs.ReplicaLogs`."""

    def page(self, identity: Identity, *, lines: int, token: str) -> LogPage:
        """A page of the logs of a service's replicas, read from the cluster now."""


class Ending(Protocol):
    """What the Flyte side needs of `provisioner.control.ending.Ending`."""

    def end(self, namespace: str, service: str, user: User) -> Status:
        """End the use of a service by a whole execution."""

    def end_all(self, namespace: str, user: User) -> Status:
        """End every service that an execution has made."""


class Control(Protocol):
    """What the Flyte side needs of `provisioner.control.Controller`."""

    def start(self) -> None:
        """Start watching and working."""

    def stop(self, timeout: float) -> bool:
        """Finish or cancel what runs; says whether all had ended after `timeout` seconds."""

    def ready(self) -> bool:
        """Whether calls can be answered."""

    def ensure(self, request: ServiceRequest) -> Status:
        """Ask for a service."""

    def observe(self, request: ServiceRequest) -> Status:
        """How a service is."""

    def remove(self, request: ServiceRequest) -> Status:
        """Ask for the removal of a service."""

    def snapshot(self, identity: Identity) -> Snapshot:
        """What the cluster shows of a service."""

    def leave(self, request: ServiceRequest, *, anew: bool = False) -> Status:
        """Ask for the removal of a service unless somebody uses it."""

    def use(self, request: ServiceRequest, user: User) -> Status:
        """Ask for a service that is shared by its name, and for a share in it."""

    @property
    def replica_logs(self) -> ReplicaLogs:
        """The logs of replicas."""

    @property
    def sharing(self) -> Sharing:
        """Services that several executions use."""

    @property
    def ending(self) -> Ending:
        """The ends of their uses."""


def _controller() -> Control:
    # pulumi and kubernetes take seconds to import, so only where they are needed.
    from provisioner.cluster import ClusterClient
    from provisioner.control.replica import Replica

    values = settings.load()
    try:
        ClusterClient(values).cluster_id()
    except UsageError:
        raise  # no such context or file: waiting does not help
    except ProvisionerError as error:
        log.warning("the cluster cannot be asked yet", cause=error.message, reason=error.reason, hint=error.hint)
    return Replica.from_settings(values)


class Runtime:
    """Holds the one control of a process.

    Args:
        make: Makes it; the real one by default.
    """

    def __init__(self, make: Callable[[], Control] = _controller) -> None:
        self._make = make
        self._control: Control | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def control(self) -> Control:
        """The control, started. A failed start is tried again at the next call.

        Raises:
            TransientError: It cannot be started. Even a wrong setting is no
                fault of the task that asks; the server's operator corrects it.
        """
        try:
            return self.start()
        except PermanentError as error:
            message = f"the provisioner cannot start: {error.message}"
            raise TransientError(message, reason=error.reason, hint=error.hint) from error

    def start(self) -> Control:
        """Start control now, if it does not run yet.

        Raises:
            ProvisionerError: It cannot be started with these settings.
        """
        with self._lock:
            if self._control is None:
                logs.configure_as_guest(settings.load())
                control = self._make()
                control.start()
                self._control = control
                atexit.register(self._stop_at_exit)
            return self._control

    def ready(self) -> bool:
        """Whether control runs and can answer; starts nothing."""
        return self._control is not None and not self._stopped and self._control.ready()

    def stop(self, timeout: float) -> bool:
        """Stop control for good, if it ran; it still answers from memory.

        May be called again, from another thread, with less time.

        Args:
            timeout: Seconds that running operations get.

        Returns:
            Whether all operations had ended.
        """
        self._stopped = True
        return self._control is None or self._control.stop(timeout)

    def _stop_at_exit(self) -> None:
        if not self._stopped and not self.stop(settings.load().drain_timeout):
            log.warning("ended while an operation was running; the next start continues it")


RUNTIME = Runtime()
