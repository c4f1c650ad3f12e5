"""What one operation does: bring a stack up, or take it down and verify that nothing is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from provisioner.cluster import ClusterClient, Snapshot, stuck_pods
from provisioner.cluster.live import LiveObjects
from provisioner.cluster.objects import Pod
from provisioner.control.access import read_access
from provisioner.control.admission import Way, check_claims, check_cluster, check_names, way
from provisioner.control.drift import Drifted, compare
from provisioner.control.head_start import HeadStart
from provisioner.control.queue import Again, Begun, Done, Kind, Lane, Operation, Outcome, Withdrawn
from provisioner.control.quota import Quotas
from provisioner.control.recorded import Recorded, recorded, recorded_cluster, recorded_origin
from provisioner.control.removal import take_down
from provisioner.control.request import ServiceRequest
from provisioner.control.reservations import Reservations
from provisioner.control.usage import Usage
from provisioner.engine import Cancellation, Checkpoint, Engine
from provisioner.engine.origin import backend_id
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import FIELD_MANAGER, Origin
from provisioner.resources.component import program
from provisioner.sealing import Sealer
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec

# Seconds between two looks at objects that are on their way out.
_TERMINATION_POLL = 1.0
# Seconds in which the StatefulSet's controller has seen an update; it takes milliseconds unless it is down.
_OBSERVED_SECONDS = 5.0
_OBSERVED_POLL = 0.1


class Operations:
    """Carries out operations with the engine and the cluster.

    Args:
        engine: Runs Pulumi.
        cluster: Looks before it leaps, and afterwards.
        settings: Bounds of one operation.
        clock: The time in seconds since the epoch.
        permit: Called before each operation; raises when none may begin.
    """

    def __init__(
        self,
        engine: Engine,
        cluster: ClusterClient,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        permit: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._live = LiveObjects(cluster.transport)
        self._usage = Usage(cluster, settings)
        # What makes a service ends within its time, and a cancelled engine within its grace.
        lasting = settings.operation_timeout + 2 * settings.cancel_grace
        reservations = Reservations(cluster.transport, settings.lease_namespace, lasting)
        self._quotas = Quotas(read_access(settings.access), self._live, reservations)
        self._settings = settings
        self._sealer = Sealer.of(settings)
        self._head_start = HeadStart(engine, cluster.transport, self._sealer)
        self._lock = threading.Lock()
        self._known_origin: Origin | None = None
        self._clock = clock
        self._permit = permit

    def run(self, operation: Operation, cancellation: Cancellation) -> Outcome:
        """Carry out one operation; what goes wrong is raised as a `ProvisionerError`."""
        self._permit()
        intent = operation.intent
        if operation.lane is Lane.BEGIN:
            return self._begin(intent.request)
        if intent.kind is Kind.REMOVE:
            users = self._usage.close(intent.request.identity) if intent.unused else ()
            return Done(users=users) if users else self._remove(intent.request, cancellation)
        if intent.stuck:
            return self._unblock(intent.request, intent.stuck)
        return self._apply(intent.request, cancellation, repair=intent.repair)

    def recorded(self, stack: str) -> ServiceRequest | None:
        """Read back what was asked for a stack, from its component's inputs.

        Args:
            stack: Name of the stack.

        Returns:
            The request, accepted now; None when there is no such record.
        """
        found = self._record(stack)
        return ServiceRequest(found.identity, found.spec, self._clock(), shared=found.shared) if found else None

    def drift(self, checkpoint: Checkpoint, spec: DataServiceSpec) -> tuple[Drifted, ...]:
        """What others changed since the last apply, field by field.

        Args:
            checkpoint: The stack's.
            spec: What was applied.
        """
        secrets = self._sealer.opened(spec, checkpoint.stack)
        found: list[Drifted] = []
        for resource in checkpoint.objects:
            namespace, _, name = resource.id.partition("/")
            live = self._live.get(resource.type.rsplit(":", 1)[-1], namespace, name)
            found += compare(resource, live, spec, secrets)
        return tuple(found)

    def program(self, request: ServiceRequest, checkpoint: Checkpoint | None) -> Callable[[], None]:
        """The inline program of a service, with where it is recorded and runs.

        Args:
            request: What is wanted.
            checkpoint: The stack's, or None.
        """
        origin = self._origin(checkpoint)
        return program(request.identity, request.spec, self._sealer, origin, shared=request.shared)

    def _origin(self, checkpoint: Checkpoint | None) -> Origin:
        # Who applied an object under another name keeps its fields: it stays with the one it was made under.
        made = checkpoint is not None and checkpoint.objects
        return replace(self._here(), manager=recorded_origin(checkpoint).manager if made else FIELD_MANAGER)

    def _here(self) -> Origin:
        with self._lock:
            if self._known_origin is None:
                self._known_origin = Origin(self._cluster_id(), backend_id(self._settings))
            return self._known_origin

    def _cluster_id(self) -> str:
        try:
            return self._cluster.cluster_id()
        except PermanentError as error:
            if error.reason != "Forbidden":
                raise
            # Who may not look at namespaces does without this safeguard.
            return ""

    def _begin(self, request: ServiceRequest) -> Outcome:
        """What needs no engine: to see that nothing is to be done, and to make the objects of a new service."""
        if not self._engine.state.direct:
            return Begun()
        checkpoint = self._engine.state.checkpoint(request.stack)
        if checkpoint is not None:
            unchanged = _applied(recorded(checkpoint), request) and not self._to_correct(request, checkpoint)
            return Done() if unchanged else Begun()
        if self._engine.tombstones.withdrawn(request.stack, request.accepted_at):
            return Withdrawn()
        with self._quotas.reserved(request):
            check_names(self._cluster.foreign(request.identity))
            going = self._leftovers(request)
            if going:
                return _still_there(going)
            self._head_start.give(request, self._origin(None))
        return Begun()

    def _to_correct(self, request: ServiceRequest, checkpoint: Checkpoint) -> bool:
        """Whether others changed what they must not."""
        correct = request.spec.drift.policy == "correct"
        return correct and any(not found.ignored for found in self.drift(checkpoint, request.spec))

    def _apply(self, request: ServiceRequest, cancellation: Cancellation, *, repair: bool) -> Outcome:
        checkpoint = self._engine.state.checkpoint(request.stack)
        record = recorded(checkpoint)
        if not repair and checkpoint is not None and _applied(record, request):
            repair = self._to_correct(request, checkpoint)
            if not repair:
                return Done()
        if self._engine.tombstones.withdrawn(request.stack, request.accepted_at):
            return Withdrawn()
        with self._quotas.reserved(request):
            return self._make(request, checkpoint, record, cancellation, repair=repair)

    def _make(
        self,
        request: ServiceRequest,
        checkpoint: Checkpoint | None,
        record: Recorded | None,
        cancellation: Cancellation,
        *,
        repair: bool,
    ) -> Outcome:
        check_names(self._cluster.foreign(request.identity))
        check_cluster(request.identity.service, recorded_cluster(checkpoint), self._here().cluster)
        stack = self._engine.stack(request.stack)
        if way(record, request) is Way.RECREATE:
            stack.destroy(deadline=self._settings.operation_timeout, cancellation=cancellation)
            # What was begun without an engine is in no record.
            self._cluster.delete_labelled(request.identity)
            record = None
        if record is None:
            going = self._leftovers(request)
            if going:
                return _still_there(going)
        left = max(1.0, min(self._settings.operation_timeout, request.deadline - self._clock()))
        result = stack.up(
            self.program(request, checkpoint),
            deadline=left,
            cancellation=cancellation,
            refresh=repair,
        )
        changes = [str(change) for change in result.changes.changed if change.type.startswith("kubernetes:")]
        if record is not None and changes and not _only_begun(checkpoint, record, request):
            changes += self._unblocked(request, cancellation)
        # Where a look is a process, the engine has the record itself, and nothing can come between.
        if self._engine.state.direct and not _applied(self._record(request.stack), request):
            raise self._lost("applied", request)
        return Done(tuple(changes))

    def _record(self, stack: str) -> Recorded | None:
        return recorded(self._engine.state.checkpoint(stack))

    def _lost(self, what: str, request: ServiceRequest) -> TransientError:
        """The engine makes a folder that is not there: what it wrote while a volume was away lies below it."""
        return TransientError(
            f"stack {request.stack} was {what}, and its record does not say so",
            reason="RecordLost",
            hint="was the state folder or bucket away meanwhile, or put back from a copy? It is done again",
        )

    def _leftovers(self, request: ServiceRequest) -> str:
        """What an earlier service of this very stack left on its way out; it would take the new one with it."""
        statefulset = self._live.statefulset(request.identity)
        if statefulset is not None:
            # One that stays was made by a run that was stopped: it is adopted.
            return f"StatefulSet {statefulset.name}" if statefulset.deleted is not None else ""
        claims = self._live.claims(request.identity)
        check_claims(claims, request.spec, request)
        return ", ".join(f"PersistentVolumeClaim {claim.name}" for claim in claims if claim.going)

    def _unblocked(self, request: ServiceRequest, cancellation: Cancellation) -> list[str]:
        """Delete the pods that would hold up the rollout that an update has just begun."""
        identity = request.identity
        deadline = time.monotonic() + _OBSERVED_SECONDS
        while time.monotonic() < deadline and not cancellation.cancelled:
            statefulset = self._live.statefulset(identity)
            if statefulset is None:
                return []
            if statefulset.observed_generation >= statefulset.generation:
                stuck = stuck_pods(Snapshot(statefulset=statefulset, pods=self._live.pods(identity)))
                return list(self._unblock(request, stuck).changes)
            time.sleep(_OBSERVED_POLL)
        return []

    def _unblock(self, request: ServiceRequest, stuck: Sequence[Pod]) -> Done:
        namespace = request.identity.namespace
        deleted = [pod for pod in stuck if self._cluster.delete_pod(namespace, pod.name, pod.uid)]
        return Done(tuple(f"delete Pod {pod.name} (held up the rollout)" for pod in deleted))

    def _remove(self, request: ServiceRequest, cancellation: Cancellation) -> Outcome:
        # First, so that no other server makes it anew.
        self._engine.tombstones.bury(request.stack, request.accepted_at)
        stack = self._engine.stack(request.stack)
        checkpoint = self._engine.state.checkpoint(request.stack)
        if checkpoint is None:
            # Who was killed after the record was gone has left its backup and its history.
            stack.tidy()
        else:
            check_cluster(request.identity.service, recorded_cluster(checkpoint), self._here().cluster)
            if checkpoint.objects or checkpoint.pending_operations:
                take_down(
                    stack,
                    self._cluster.foreign(request.identity),
                    deadline=self._settings.operation_timeout,
                    cancellation=cancellation,
                )
            else:
                # No engine has made anything: what was begun without one is found by its label.
                stack.forget()
            if self._engine.state.direct and stack.exists():
                raise self._lost("removed", request)
        # What a killed run created without recording it carries our label and nobody else's.
        self._cluster.delete_labelled(request.identity)
        remaining = self._cluster.remaining(request.identity)
        if remaining:
            return Again(_TERMINATION_POLL, f"{', '.join(remaining)} still there")
        return Done()


def _only_begun(checkpoint: Checkpoint | None, record: Recorded, request: ServiceRequest) -> bool:
    """Whether no engine has made anything yet, and what was begun is what is wanted now."""
    made = checkpoint is not None and checkpoint.objects
    return not made and record.spec.digest() == request.spec.digest()


def _still_there(going: str) -> Again:
    return Again(_TERMINATION_POLL, f"{going} of an earlier service still there")


def _applied(record: Recorded | None, request: ServiceRequest) -> bool:
    """Whether what is recorded is this request, carried out in full; one that failed since has another record."""
    return record is not None and record.applied and record.spec.digest() == request.spec.digest()
