"""Services of a local run (`pyflyte run`): this process owns them, and they end with it.

In a cluster Flyte or the janitor ends a service whose execution is over. A
local run has neither, so a child process watches this one (`control.reaper`)
and removes what is left when it ends, however it ends.
"""

from __future__ import annotations

import sys
import threading
import time

import structlog

from provisioner import settings
from provisioner.control.reaper import Reaper
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase
from provisioner.errors import TransientError
from provisioner.flyte.runtime import Runtime

log = structlog.get_logger(__name__)

_POLL_SECONDS = 0.2


class LocalServices:
    """The services that workflows running in this process created.

    Args:
        runtime: Gives the control.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._reaper: Reaper | None = None
        self._owned: set[str] = set()
        self._removing: set[str] = set()
        self._told: dict[str, str] = {}
        self._lock = threading.Lock()

    def own(self, request: ServiceRequest) -> None:
        """Take a service into this process's care, before it is created."""
        with self._lock:
            if self._reaper is None:
                self._reaper = Reaper.start(before_end=self._stop_control)
            self._reaper.own(request)
            self._owned.add(request.stack)

    def owns(self, request: ServiceRequest) -> bool:
        """Whether a workflow running in this process created it."""
        return request.stack in self._owned

    def disown(self, request: ServiceRequest) -> None:
        """Let go of a service that could not be asked for, so that nobody looks for it at the end."""
        with self._lock:
            self._owned.discard(request.stack)
            if self._reaper is not None:
                self._reaper.forget(request.stack)

    def tell(self, request: ServiceRequest, message: str) -> None:
        """Show how one of this process's services is, each time that this changes.

        flytekit shows it too, in a line that lasts as long as the task and
        appears on a terminal alone.

        Args:
            request: Which; another's is passed over.
            message: How it is; its first line is shown.
        """
        line = message.partition("\n")[0]
        if self.owns(request) and self._told.get(request.stack) != line:
            self._told[request.stack] = line
            print(f"data service {request.stack}: {line}", file=sys.stderr)

    def remove(self, request: ServiceRequest) -> None:
        """Remove a service and wait until nothing of it is left.

        Called from flytekit's handler of Ctrl-C; a second Ctrl-C while it
        waits ends the process, and the child goes on.

        Raises:
            TransientError: It was not gone in time; the child goes on.
        """
        stack = request.stack
        if stack in self._removing:
            print(f"data service {stack}: its removal goes on in the background", file=sys.stderr)
            raise SystemExit(130)
        self._removing.add(stack)
        print(f"data service {stack}: removing it", file=sys.stderr)
        limit = settings.load().operation_timeout
        deadline = time.monotonic() + limit
        while (status := self._runtime.control().remove(request)).phase is not Phase.GONE:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"{stack} is not gone after {limit:g} s: {status.message}",
                    reason="RemovalTimeout",
                    hint="its removal goes on in the background",
                )
            time.sleep(_POLL_SECONDS)
        self._owned.discard(stack)
        if self._reaper is not None:
            self._reaper.forget(stack)
        print(f"data service {stack}: gone", file=sys.stderr)

    def _stop_control(self) -> None:
        self._runtime.stop(settings.load().cancel_grace)
