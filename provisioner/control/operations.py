"""What one operation does: bring a stack up, or take it down and verify that nothing is left."""

from __future__ import annotations

import time
from collections.abc import Callable

from provisioner.cluster import ClusterClient
from provisioner.control.queue import Again, Done, Kind, Operation, Outcome
from provisioner.control.recorded import is_applied, recorded
from provisioner.control.request import ServiceRequest
from provisioner.engine import Cancellation, Engine
from provisioner.errors import RefusedError
from provisioner.resources.component import program
from provisioner.sealing import Sealer
from provisioner.settings import Settings

# Seconds between two looks at objects that are on their way out.
_TERMINATION_POLL = 1.0


class Operations:
    """Carries out operations with the engine and the cluster.

    Args:
        engine: Runs Pulumi.
        cluster: Looks before it leaps, and afterwards.
        settings: Bounds of one operation.
        clock: The time in seconds since the epoch.
    """

    def __init__(
        self, engine: Engine, cluster: ClusterClient, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._settings = settings
        self._sealer = Sealer.of(settings)
        self._clock = clock

    def run(self, operation: Operation, cancellation: Cancellation) -> Outcome:
        """Carry out one operation; what goes wrong is raised as a `ProvisionerError`."""
        intent = operation.intent
        if intent.kind is Kind.REMOVE:
            return self._remove(intent.request, cancellation)
        return self._apply(intent.request, cancellation, repair=intent.repair)

    def recorded(self, stack: str) -> ServiceRequest | None:
        """Read back what was asked for a stack, from its component's inputs.

        Args:
            stack: Name of the stack.

        Returns:
            The request, accepted now; None when there is no such record.
        """
        found = recorded(self._engine.state.checkpoint(stack))
        return ServiceRequest(found.identity, found.spec, self._clock()) if found else None

    def _apply(self, request: ServiceRequest, cancellation: Cancellation, *, repair: bool) -> Outcome:
        checkpoint = self._engine.state.checkpoint(request.stack)
        if not repair and checkpoint is not None and is_applied(checkpoint, request.spec):
            return Done()
        foreign = self._cluster.foreign(request.identity)
        if foreign:
            first = foreign[0]
            raise RefusedError(
                f"{first.kind} {first.namespace}/{first.name} exists and belongs to {first.owner}",
                reason="NotOurs",
                hint="give the service another name, or remove that object if nobody needs it",
            )
        left = max(1.0, min(self._settings.operation_timeout, request.deadline - self._clock()))
        result = self._engine.stack(request.stack).up(
            program(request.identity, request.spec, self._sealer),
            deadline=left,
            cancellation=cancellation,
            refresh=repair,
        )
        return Done(tuple(str(change) for change in result.changes.changed))

    def _remove(self, request: ServiceRequest, cancellation: Cancellation) -> Outcome:
        stack = self._engine.stack(request.stack)
        if stack.exists():
            stack.destroy(deadline=self._settings.operation_timeout, cancellation=cancellation)
        # What a killed run created without recording it carries our label and nobody else's.
        self._cluster.delete_labelled(request.identity)
        remaining = self._cluster.remaining(request.identity)
        if remaining:
            return Again(_TERMINATION_POLL, f"{', '.join(remaining)} still there")
        return Done()
