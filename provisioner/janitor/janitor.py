"""The janitor as a whole: one sweep, or one after the other for as long as this replica is the elected one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import structlog

from provisioner.cluster import ClusterClient
from provisioner.control.holders import LeaseHolders, PodHolders, first_known
from provisioner.engine import Cancellation, Engine
from provisioner.errors import ProvisionerError
from provisioner.janitor import metrics
from provisioner.janitor.backend import Backend
from provisioner.janitor.decision import Decision, Plan, Verdict
from provisioner.janitor.facts import Inventory
from provisioner.janitor.gather import Gatherer
from provisioner.janitor.leader import Elector
from provisioner.janitor.memory import Memory
from provisioner.janitor.objects import Objects
from provisioner.janitor.outcome import Completion, Outcome, Report
from provisioner.janitor.owners import Executions, ExecutionSource
from provisioner.janitor.owners_flyteadmin import FlyteAdmin
from provisioner.janitor.owners_flyteworkflow import FlyteWorkflows
from provisioner.janitor.owners_object import OwnerObjects
from provisioner.janitor.policy import Policy, Source
from provisioner.janitor.settings import JanitorSettings
from provisioner.janitor.sweep import Sweeper
from provisioner.settings import Settings

_log = structlog.get_logger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Janitor:
    """Removes what lost its owner, and nothing else.

    Args:
        settings: Backend, cluster and time limits.
        own: The janitor's own settings.
        clock: The time, with its zone.

    Attributes:
        gatherer: Finds out what is to be done.

    Example:
        >>> janitor = Janitor(Settings(), JanitorSettings())  # doctest: +SKIP
        >>> janitor.sweep(dry_run=True).plan.removals  # doctest: +SKIP
    """

    def __init__(self, settings: Settings, own: JanitorSettings, clock: Callable[[], datetime] = _utc_now) -> None:
        self._settings = settings
        self._own = own
        self._clock = clock
        policy = own.policy()
        self._client = ClusterClient(settings)
        leases = LeaseHolders(self._client, settings.lease_namespace)
        alive = first_known(leases.alive, PodHolders(self._client, own.lock_pods).alive)
        self._engine = Engine(settings, holder_alive=alive)
        self._readers = ThreadPoolExecutor(own.readers, thread_name_prefix="read")
        self._backend = Backend(self._engine, settings, alive, backups_kept=own.backups_kept)
        objects = Objects(self._client, own.namespaces)
        self._memory = Memory.beside(settings.backend, own.records)
        self.gatherer = Gatherer(
            self._backend,
            objects,
            Executions(self._sources(policy)),
            OwnerObjects(self._client),
            self._memory,
            policy,
            own.namespaces,
            self._readers,
            clock,
        )
        self._sweeper = Sweeper(
            self.gatherer,
            self._engine,
            self._backend,
            objects,
            self._memory,
            policy,
            destroy_timeout=settings.operation_timeout,
            verify_timeout=own.verify_timeout,
            clock=clock,
        )

    def _sources(self, policy: Policy) -> list[ExecutionSource]:
        sources: list[ExecutionSource] = []
        if Source.FLYTEWORKFLOW in policy.sources:
            sources.append(FlyteWorkflows(self._client))
        if Source.FLYTEADMIN in policy.sources:
            sources.append(FlyteAdmin(self._readers))
        return sources

    def close(self) -> None:
        """End its threads."""
        self._readers.shutdown()

    def sweep(self, *, dry_run: bool = False, cancellation: Cancellation | None = None) -> Report:
        """Make one plan and carry it out.

        Args:
            dry_run: Only make the plan; nothing is changed anywhere.
            cancellation: Ends the sweep: nothing more is begun.

        Raises:
            ProvisionerError: The stacks or the cluster cannot be listed, so
                nothing can be decided and nothing is done.
        """
        try:
            report = self._swept(dry_run, cancellation)
        except Exception:
            if not dry_run:
                metrics.SWEEPS.labels("failed").inc()
            raise
        if not dry_run:
            _measure(report)
        return report

    def _swept(self, dry_run: bool, cancellation: Cancellation | None) -> Report:
        started, clock = self._clock(), time.monotonic()
        read_before = self._backend.checkpoints_read
        inventory, plan = self.gatherer.everything()
        read = self._backend.checkpoints_read - read_before
        for decision in plan.decisions:
            _log_decision(decision)
        outcomes: tuple[Outcome, ...] = ()
        if not dry_run and not plan.refused:
            outcomes = self.carry_out(plan, inventory, cancellation)
        return Report(
            plan,
            started,
            time.monotonic() - clock,
            read,
            dry_run=dry_run,
            outcomes=outcomes,
            unlisted=inventory.unlisted,
        )

    def carry_out(
        self, plan: Plan, inventory: Inventory, cancellation: Cancellation | None = None
    ) -> tuple[Outcome, ...]:
        """Carry a plan out; each step is made only if its reason still holds.

        Args:
            plan: What is to be done.
            inventory: What it was made from.
            cancellation: Ends it: nothing more is begun.
        """
        return self._sweeper.carry_out(plan, inventory, self._own.parallel, cancellation or Cancellation())

    def forget(self, stack: str) -> bool:
        """Drop the record of a stack and all that is remembered of it; the cluster is not touched.

        Args:
            stack: Its name.

        Returns:
            Whether there was a record.

        Raises:
            TransientError: Somebody works on it (reason `StackLocked`).
        """
        handle = self._engine.stack(stack)
        existed = handle.exists()
        handle.forget()
        self._memory.forget(stack)
        return existed

    def run_forever(self, interval: float, stop: threading.Event) -> None:
        """Sweep again and again while this replica is the elected one; returns once it is told to stop.

        A sweep that fails is logged, and the next one comes all the same. A
        replica that loses the election in the middle of a sweep ends it.

        Args:
            interval: Seconds between the beginnings of two sweeps.
            stop: Ends it; what runs is cancelled gracefully.
        """
        elector = Elector(
            self._client,
            self._own.lease_namespace or self._settings.namespace,
            self._own.lease,
            seconds=self._own.lease_seconds,
        )
        _log.info("the janitor stands for election", identity=elector.identity, lease=self._own.lease)
        while not stop.is_set():
            try:
                if elector.step():
                    self._lead(elector, interval, stop)
            except Exception:  # noqa: BLE001 - as in a sweep: a fault must not leave the server without its janitor
                _log.exception("the election failed with what it must not")
            stop.wait(elector.retry_seconds)
        elector.release()
        metrics.LEADER.set(0)

    def _lead(self, elector: Elector, interval: float, stop: threading.Event) -> None:
        """Sweep until the Lease is lost or somebody says stop."""
        _log.info("this replica is the elected janitor", identity=elector.identity)
        metrics.LEADER.set(1)
        over = threading.Event()
        cancellation = Cancellation()

        def hold() -> None:
            try:
                elector.hold(stop, lambda: _log.warning("another replica is the janitor now, or none can be elected"))
            finally:
                # Whatever ended it: who does not renew must not sweep.
                cancellation.cancel()
                over.set()

        renewing = threading.Thread(target=hold, name="janitor-lease", daemon=True)
        renewing.start()
        while not over.is_set():
            began = time.monotonic()
            try:
                self.sweep(cancellation=cancellation)
            except ProvisionerError as error:
                _log.error("the sweep failed", error=error.message, hint=error.hint)
            except Exception:  # noqa: BLE001 - a fault of one sweep must not end the janitor for good
                _log.exception("the sweep failed with what it must not")
            over.wait(max(0.0, interval - (time.monotonic() - began)))
        renewing.join()
        metrics.LEADER.set(0)


def _log_decision(decision: Decision) -> None:
    bound = _log.bind(
        stack_name=decision.stack,
        owner=decision.owner,
        verdict=decision.verdict.value,
        reason=decision.reason,
        action=decision.action.value,
        age=round(decision.age.total_seconds()) if decision.age is not None else None,
    )
    if decision.unsettled:
        bound.warning("decided", message=decision.message)
    elif decision.verdict is Verdict.KEEP:
        bound.debug("decided", message=decision.message)
    else:
        bound.info("decided", message=decision.message)


def _measure(report: Report) -> None:
    metrics.SWEEPS.labels(report.completion.value).inc()
    metrics.SWEEP_SECONDS.observe(report.seconds)
    metrics.SERVICES.clear()
    for (verdict, reason), count in report.summary.items():
        metrics.SERVICES.labels(verdict.value, reason).set(count)
    for (action, result), count in Counter((item.decision.action, item.result) for item in report.outcomes).items():
        metrics.ACTIONS.labels(action.value, result.value).inc(count)
    oldest = report.oldest_orphan
    metrics.OLDEST_ORPHAN.set(oldest.total_seconds() if oldest is not None else 0)
    metrics.STALLED.set(sum(decision.reason == "Stalled" for decision in report.plan.decisions))
    if report.completion is Completion.COMPLETE:
        metrics.LAST_SUCCESS.set_to_current_time()
