"""Counts what a project has before it gets more: what the cluster has, and what is being made beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from provisioner.cluster.live import LiveObjects
from provisioner.control.access import AccessRule, Consumption, check_quota, consumption, gpus_of, limits
from provisioner.control.request import ServiceRequest


class Quotas:
    """The quotas of all projects.

    Two servers that make services at one moment may each count before the
    other has made its own; what must never be exceeded is a ResourceQuota.

    Args:
        rules: What each project and domain may have.
        live: Shows what there is.
    """

    def __init__(self, rules: Sequence[AccessRule], live: LiveObjects) -> None:
        self._rules = tuple(rules)
        self._live = live
        self._lock = threading.Lock()
        self._being_made: dict[str, tuple[str, str, Consumption]] = {}

    @contextmanager
    def reserved(self, request: ServiceRequest) -> Iterator[None]:
        """Hold what a service takes while it is being made.

        Args:
            request: The service.

        Raises:
            RefusedError: Its project may not have so much.
        """
        identity = request.identity
        allowed = limits(self._rules, identity.project, identity.domain)
        if not allowed.has_quota:
            yield
            return
        wanted = consumption(request.spec)
        with self._lock:
            taken = self._taken(identity.project, identity.domain)
            before = taken.pop(request.stack, Consumption())
            check_quota(allowed, identity, sum(taken.values(), Consumption()), wanted, before)
            self._being_made[request.stack] = (identity.project, identity.domain, wanted)
        try:
            yield
        finally:
            with self._lock:
                del self._being_made[request.stack]

    def _taken(self, project: str, domain: str) -> dict[str, Consumption]:
        """What each service of a project and domain takes, by stack."""
        taken = {
            item.stack: Consumption(1, item.replicas, item.replicas * gpus_of(item.limits))
            for item in self._live.sized(project, domain)
        }
        for stack, (of_project, of_domain, made) in self._being_made.items():
            if (of_project, of_domain) == (project, domain):
                taken[stack] = made
        return taken
