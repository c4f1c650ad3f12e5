"""Services that several executions use: who holds one, and what it is like for them.

A service that was made to be shared, and one that another execution made, are
used under a Lease. It is taken aside from the poll that needs it, renewed
while polls come, and nobody is told that a service is ready before it is his.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from provisioner.cluster import ClusterCache, Snapshot
from provisioner.control.chores import Chores
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.control.usage import Hold, Usage
from provisioner.errors import PermanentError, RefusedError, TransientError
from provisioner.identity import Identity, User

# While a service is on its way out a user looks again this often.
_CLOSING_SECONDS = 2.0
# A lease is renewed, while polls come, each so much of its time.
_RENEWED_SHARE = 0.1
_LONGEST_RENEWAL = 3600.0


class Leave(Protocol):
    """Removes a service unless somebody uses it."""

    def __call__(self, request: ServiceRequest, *, anew: bool = False) -> Status:
        """As `Controller.leave`."""


class Sharing:
    """What users see and hold of services that are not their own alone.

    Args:
        cache: What the cluster shows.
        usage: Takes and gives back Leases.
        recorded: Reads back what was asked for a stack; None when there is no such stack.
        judge: The status of an applied service from what the cluster shows.
        leave: Removes a service unless somebody uses it.
        user_lease: Seconds for which a Lease counts.
    """

    def __init__(
        self,
        cache: ClusterCache,
        usage: Usage,
        recorded: Callable[[str], ServiceRequest | None],
        judge: Callable[[ServiceRequest, Snapshot], Status],
        leave: Leave,
        user_lease: float,
    ) -> None:
        self._cache = cache
        self._usage = usage
        self._recorded = recorded
        self._judge = judge
        self._leave = leave
        self._renewal = min(_LONGEST_RENEWAL, user_lease * _RENEWED_SHARE)
        self._chores = Chores()
        self._known: dict[str, ServiceRequest] = {}

    def stop(self) -> None:
        """Begin nothing more."""
        self._chores.stop()

    def attached(self, namespace: str, service: str, user: User | None) -> Status:
        """The status of a service that somebody else asked for.

        Args:
            namespace: Its namespace.
            service: Its name.
            user: Who uses it; None for who may use any and holds nothing.

        Raises:
            TransientError: The cluster has not been heard of lately, or its
                record cannot be read now.
        """
        stack = self._cache.stack_of(namespace, service)
        request = self._request(stack) if stack is not None else None
        if stack is None or request is None:
            return self._unknown(namespace, service)
        if user is not None and not belongs(request.identity, user):
            error = not_yours(namespace, service, user)
            return Status(stack, Phase.FAILED, error.reason, error.message, error.hint)
        snapshot = self._cache.snapshot(request.identity)
        statefulset = snapshot.statefulset
        if statefulset is None or statefulset.deleted is not None:
            return Status(stack, Phase.REMOVING, message=f"data service {namespace}/{service} is being removed")
        if statefulset.digest != request.spec.digest():
            # It was updated by its owner; its record says what is wanted now.
            self._known.pop(stack, None)
        status = self._judge(request, snapshot)
        if user is None or not (request.identity.owner or request.shared):
            # Nobody but a person ends it: there is nothing to hold.
            return status
        return self.held(request.identity, user, status)

    def held(self, identity: Identity, user: User, status: Status) -> Status:
        """A status as a user may be told it: ready only once the service is held.

        Args:
            identity: The service.
            user: Who uses it.
            status: How it is.
        """
        if status.phase is Phase.FAILED:
            return status
        key = ("lease", identity.stack, user.holder)
        outcome = self._chores.ask(key, lambda: self._usage.take(identity, user), fresh=self._fresh)
        if outcome is not None and isinstance(outcome.error, PermanentError):
            error = outcome.error
            return replace(status, phase=Phase.FAILED, reason=error.reason, message=error.message, hint=error.hint)
        if status.phase is not Phase.READY or (outcome is not None and outcome.value is Hold.HELD):
            return status
        if outcome is None:
            message = "its use is being registered"
        elif outcome.error is not None:
            message = f"its use is not registered yet: {outcome.error.message}"
        else:
            message = "its last user has left, and it is on its way out"
        return replace(status, phase=Phase.STARTING, message=message, endpoints=())

    def release(
        self, identity: Identity, user: User, *, request: ServiceRequest | None = None, whole_execution: bool = False
    ) -> None:
        """End a use; the service goes when it was the last of one that belongs to its users alone.

        Returns at once. What fails is repeated, and the janitor ends what this process does not live to see.

        Args:
            identity: The service.
            user: Who used it.
            request: What was asked for, where it was made to be shared.
            whole_execution: Also the uses of the other nodes of its execution.
        """

        def give_back() -> None:
            alone = self._usage.give_back(identity, user, whole_execution=whole_execution)
            wanted = request or (self._recorded(identity.stack) if alone else None)
            if wanted is not None and wanted.spec.deletion_policy == "Delete":
                self._leave(wanted, anew=True)

        self._chores.insist(("lease", identity.stack, user.holder), give_back)

    def identity(self, namespace: str, service: str) -> Identity | None:
        """Whose a service is, by its name; None when the cluster shows none.

        Args:
            namespace: Its namespace.
            service: Its name.
        """
        stack = self._cache.stack_of(namespace, service)
        request = self._request(stack) if stack is not None else None
        return request.identity if request is not None else None

    def _request(self, stack: str) -> ServiceRequest | None:
        found = self._known.get(stack) or self._recorded(stack)
        if found is not None:
            self._known[stack] = found
        return found

    def _fresh(self, value: object) -> float:
        return self._renewal if value is Hold.HELD else _CLOSING_SECONDS

    def _unknown(self, namespace: str, service: str) -> Status:
        if not self._cache.synced():
            raise TransientError("the cluster's objects were not listed yet", reason="NotSynced")
        return Status(
            "",
            Phase.FAILED,
            reason="NoSuchService",
            message=f"there is no data service {service} in namespace {namespace}",
            hint="create it first, or correct the name; a service of another namespace cannot be used",
        )


def belongs(identity: Identity, user: User) -> bool:
    """Whether a user may use, see or end a service: it is of the same project and domain.

    Args:
        identity: The service.
        user: Who asks.
    """
    return (identity.project, identity.domain) == (user.project, user.domain)


def not_yours(namespace: str, service: str, user: User) -> RefusedError:
    """The error of who asks for a service of another project; whose it is, is not for everybody to know.

    Args:
        namespace: Its namespace.
        service: Its name.
        user: Who asks.
    """
    return RefusedError(
        f"data service {service} in namespace {namespace} does not belong to project {user.project!r}, "
        f"domain {user.domain!r}",
        reason="NotYours",
        hint="use a service of your own project and domain, or correct the name",
    )
