"""Counts what a project has before it gets more: what the cluster has, and what any server is making."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog

from provisioner.cluster.live import LiveObjects
from provisioner.control.access import AccessRule, Consumption, Limits, check_quota, consumption, gpus_of, limits
from provisioner.control.request import ServiceRequest
from provisioner.control.reservations import Reservations, Reserved, taken_of, was_first
from provisioner.errors import ProvisionerError, TransientError

log = structlog.get_logger(__name__)

# Each time another server was first, so that one of them gets on.
_ATTEMPTS = 10


class Quotas:
    """The quotas of all projects.

    Args:
        rules: What each project and domain may have.
        live: Shows what there is.
        reservations: What is being made, by this server and by others.
    """

    def __init__(self, rules: Sequence[AccessRule], live: LiveObjects, reservations: Reservations) -> None:
        self._rules = tuple(rules)
        self._live = live
        self._reservations = reservations
        # The threads of one server take turns, and contend with those of others alone.
        self._lock = threading.Lock()

    @contextmanager
    def reserved(self, request: ServiceRequest) -> Iterator[None]:
        """Hold what a service takes while it is being made.

        Args:
            request: The service.

        Raises:
            RefusedError: Its project may not have so much.
            TransientError: It cannot be counted now.
        """
        identity = request.identity
        allowed = limits(self._rules, identity.project, identity.domain)
        if not allowed.has_quota:
            yield
            return
        with self._lock:
            reserved = self._reserve(request, allowed)
        try:
            yield
        finally:
            try:
                self._reservations.end(identity.project, identity.domain, reserved)
            except ProvisionerError as error:
                log.warning("a reservation stays until it is over", stack_name=request.stack, error=error.message)

    def _reserve(self, request: ServiceRequest, allowed: Limits) -> Reserved:
        identity, wanted = request.identity, consumption(request.spec)
        project, domain, holder = identity.project, identity.domain, secrets.token_hex(4)
        for _ in range(_ATTEMPTS):
            # In this order: what is reserved no more can be seen.
            seen = self._reservations.read(project, domain)
            taken = self._made(project, domain) | taken_of(seen.reserved)
            before = taken.pop(request.stack, Consumption())
            check_quota(allowed, identity, sum(taken.values(), Consumption()), wanted, before)
            try:
                return self._reservations.add(project, domain, seen, request.stack, holder, wanted)
            except ProvisionerError as error:
                if not was_first(error):
                    raise
        raise TransientError(
            f"the quota of project {project!r}, domain {domain!r} is being changed by other servers all the time",
            reason="QuotaBusy",
        )

    def _made(self, project: str, domain: str) -> dict[str, Consumption]:
        """What each service that the cluster has takes, by stack."""
        return {
            item.stack: Consumption(1, item.replicas, item.replicas * gpus_of(item.limits))
            for item in self._live.sized(project, domain)
        }
