"""Which services have failed, remembered for a while so that a late poll learns of it."""

from __future__ import annotations

import threading

from provisioner.control.request import ServiceRequest
from provisioner.control.status import Status

REMEMBERED_SECONDS = 3600.0
"""How long the end of a service is remembered."""


class Failures:
    """Failures by stack; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, tuple[ServiceRequest, Status, float]] = {}

    def of(self, request: ServiceRequest) -> Status | None:
        """How a service failed; None when it did not, or when something else is wanted of it now.

        Args:
            request: What is wanted.
        """
        failure = self._found.get(request.stack)
        return failure[1] if failure is not None and failure[0].same(request) else None

    def add(self, request: ServiceRequest, status: Status, now: float) -> None:
        """Remember a failure.

        Args:
            request: What was wanted.
            status: How it failed.
            now: The time in seconds since the epoch.
        """
        with self._lock:
            self._found[request.stack] = (request, status, now)

    def forget_other(self, request: ServiceRequest) -> None:
        """Forget how a service failed when something else was wanted of it.

        Args:
            request: What is wanted now.
        """
        with self._lock:
            failure = self._found.get(request.stack)
            if failure is not None and not failure[0].same(request):
                del self._found[request.stack]

    def forget(self, stack: str) -> None:
        """Forget how a service failed, because it is wanted anew or not any more."""
        with self._lock:
            self._found.pop(stack, None)

    def forget_old(self, now: float) -> None:
        """Forget what is older than `REMEMBERED_SECONDS`.

        Args:
            now: The time in seconds since the epoch.
        """
        with self._lock:
            for stack, (_, _, failed_at) in list(self._found.items()):
                if now - failed_at > REMEMBERED_SECONDS:
                    del self._found[stack]

    def stacks(self) -> list[str]:
        """All stacks that failed."""
        with self._lock:
            return list(self._found)
