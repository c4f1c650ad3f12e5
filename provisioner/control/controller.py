"""Ensure, observe, remove: the three verbs that every face of the product calls.

Level-triggered: each call says what is wanted, answers from memory in
microseconds, and starts what is missing. Nothing is lost with the process:
the caller's request comes back with the next poll, and the checkpoint says
whether it was carried out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self

from prometheus_client import REGISTRY

from provisioner.cluster import ClusterCache, ClusterClient, Diagnosis, Snapshot, diagnose, readiness
from provisioner.cluster.findings.rules import graces
from provisioner.control.again import again
from provisioner.control.census import PhaseCollector, census
from provisioner.control.derive import as_scaled, derive, derive_cluster
from provisioner.control.ending import Ending
from provisioner.control.failures import REMEMBERED_SECONDS, Failures
from provisioner.control.last_words import LastWords
from provisioner.control.operations import Operations
from provisioner.control.queue import Backoff, Intent, KeyedQueue, Kind, View
from provisioner.control.replica_logs import ReplicaLogs
from provisioner.control.request import ServiceRequest
from provisioner.control.sharing import Sharing
from provisioner.control.status import Phase, Status
from provisioner.control.usage import Usage
from provisioner.control.workers import Workers
from provisioner.engine import Engine
from provisioner.errors import RefusedError
from provisioner.identity import Identity, User
from provisioner.settings import Settings


class Controller:
    """The control of all services of one process.

    Args:
        cache: What the cluster shows, from one shared watch.
        workers: Carry out operations.
        last_words: Fetches the log lines that a diagnosis asks for.
        recorded: Reads back what was asked for a stack; None when there is no such stack.
        replica_logs: Reads the logs of replicas.
        usage: Takes and gives back the Leases of users.
        remaining: What the API server still shows of a service.
        made: Names of the services in a namespace that carry some labels, from the API server.
        settings: Bounds.
        clock: The time in seconds since the epoch.
    """

    def __init__(
        self,
        cache: ClusterCache,
        workers: Workers,
        last_words: LastWords,
        recorded: Callable[[str], ServiceRequest | None],
        replica_logs: ReplicaLogs,
        usage: Usage,
        remaining: Callable[[Identity], list[str]],
        made: Callable[[str, Mapping[str, str]], list[str]],
        settings: Settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._workers = workers
        self._last_words = last_words
        self.replica_logs = replica_logs
        self._settings = settings
        self._graces = graces(settings.graces)
        self._clock = clock
        self._failures = Failures()
        self._swept_at = clock()
        self._phases = PhaseCollector(self.phases)
        self.ending = Ending(usage, recorded, cache.stack_of, remaining, made, self.leave)
        self.sharing = Sharing(cache, usage, recorded, self._seen, self.leave, settings.user_lease)

    @classmethod
    def from_settings(cls, settings: Settings, namespaces: Sequence[str] = ()) -> Self:
        """A controller over the real engine and the real cluster.

        Args:
            settings: Which.
            namespaces: Where its services are; by default those of the settings.

        Raises:
            UsageError: The settings hold a grace that is none.
        """
        return cls.assembled(settings, namespaces, ClusterClient(settings), Engine(settings))

    @classmethod
    def assembled(
        cls,
        settings: Settings,
        namespaces: Sequence[str],
        client: ClusterClient,
        engine: Engine,
        permit: Callable[[], None] = lambda: None,
    ) -> Self:
        """A controller over a certain engine and cluster.

        Args:
            settings: Bounds.
            namespaces: Where its services are; empty for those of the settings.
            client: The cluster.
            engine: The engine.
            permit: Called before each operation; raises when none may begin.

        Raises:
            UsageError: The settings hold a grace that is none.
        """
        operations = Operations(engine, client, settings, permit=permit)
        workers = Workers(settings.workers, operations.run, KeyedQueue(Backoff(stalled_after=settings.stalled_after)))
        cache = ClusterCache(client, namespaces=namespaces or settings.namespaces)
        last_words = LastWords(client.last_lines)
        usage = Usage(client, settings)
        logs = ReplicaLogs(client, cache.snapshot)
        return cls(
            cache, workers, last_words, operations.recorded, logs, usage, client.remaining, client.services, settings
        )

    def start(self) -> None:
        """Start the watch and the workers."""
        self._cache.start()
        self._workers.start()
        REGISTRY.register(self._phases)

    def stop(self, timeout: float) -> bool:
        """Let running operations finish, then cancel them.

        Args:
            timeout: Seconds in all.

        Returns:
            Whether all had ended, so that no lock is left.
        """
        clean = self._workers.stop(timeout, cancel_after=max(0.0, timeout - self._settings.cancel_grace))
        with suppress(KeyError):  # it may be stopped twice
            REGISTRY.unregister(self._phases)
        self._last_words.stop()
        self.sharing.stop()
        self.ending.stop()
        self._cache.stop()
        return clean

    def ready(self) -> bool:
        """Whether calls can be answered: the watch is in sync, the workers run."""
        return self._cache.synced() and self._workers.alive()

    def ensure(self, request: ServiceRequest) -> Status:
        """Ask for a service; an equal request changes nothing, a changed one updates it.

        Args:
            request: What is wanted.

        Raises:
            RefusedError: Its namespace is not watched, so that nobody would
                ever see it ready (reason `NamespaceNotWatched`).
        """
        self._require_watched(request)
        failure = self._failures.of(request)
        if failure is not None:
            return failure
        self._failures.forget_other(request)
        return self._status(request, self._workers.submit(Intent(Kind.APPLY, request)))

    def _require_watched(self, request: ServiceRequest) -> None:
        watched, namespace = self._settings.namespaces, request.identity.namespace
        if watched and namespace not in watched:
            raise RefusedError(
                f"namespace {namespace} is not served here; {', '.join(watched)} are",
                reason="NamespaceNotWatched",
                hint="add it to PROVISIONER_NAMESPACES of the server, or create the service in one of these",
            )

    def repair(self, request: ServiceRequest) -> Status:
        """Ask for a service, and that what others changed or deleted of it is put right.

        Args:
            request: What is wanted.
        """
        self._failures.forget(request.stack)
        return self._status(request, self._workers.submit(Intent(Kind.APPLY, request, repair=True), force=True))

    def observe(self, request: ServiceRequest) -> Status:
        """The status of a service; starts again what a crash or a deletion lost.

        Args:
            request: What was asked for.
        """
        failure = self._failures.of(request)
        if failure is not None:
            return failure
        view = self._workers.view(request.stack)
        if view is None:
            if self._clock() >= request.deadline and self._cache.snapshot(request.identity).statefulset is None:
                return self._fail(request, _expired(request))
            view = self._workers.submit(Intent(Kind.APPLY, request))
        return self._status(request, view)

    def remove(self, request: ServiceRequest) -> Status:
        """Ask for the removal of a service, whatever its state; repeating it is harmless.

        Args:
            request: The service; its specification does not matter.
        """
        self._failures.forget(request.stack)
        self._last_words.forget(request.stack)
        return self._status(request, self._workers.submit(Intent(Kind.REMOVE, request)))

    def leave(self, request: ServiceRequest, *, anew: bool = False) -> Status:
        """Ask for the removal of a service unless somebody uses it, who then keeps it.

        Args:
            request: The service; its specification does not matter.
            anew: Look again whether somebody uses it, where that was found before.
        """
        view = self._workers.view(request.stack)
        intent = Intent(Kind.REMOVE, request, unused=True)
        if view is not None and not view.settled and view.intent.kind is Kind.REMOVE and not view.intent.unused:
            return self._status(request, view)  # somebody wants it gone in any case
        self._failures.forget(request.stack)
        self._last_words.forget(request.stack)
        force = anew and view is not None and view.settled and bool(view.users)
        return self._status(request, self._workers.submit(intent, force=force))

    def use(self, request: ServiceRequest, user: User) -> Status:
        """Ask for a service that is shared by its name, and for a share in it.

        Args:
            request: What is wanted.
            user: Who uses it.
        """
        status = self.observe(request)
        if status.phase in (Phase.GONE, Phase.IN_USE):
            # Those who used it before have left; this is a new beginning.
            status = self.ensure(request)
        if status.phase is Phase.REMOVING:
            message = f"its last user has left; it is made anew once it is gone ({status.message})"
            return replace(status, phase=Phase.QUEUED, message=message)
        return self.sharing.held(request.identity, user, status)

    def settled(self, request: ServiceRequest) -> bool:
        """Whether nothing is left to be done for a service.

        Args:
            request: The service.
        """
        view = self._workers.view(request.stack)
        return view is None or view.settled

    def snapshot(self, identity: Identity) -> Snapshot:
        """What the cluster shows of a service, from memory.

        Args:
            identity: The service.
        """
        return self._cache.snapshot(identity)

    def phases(self) -> Mapping[Phase, int]:
        """How many services are in which phase."""
        return census(self._cache.statefulsets(), self._workers.views(), self._failures.stacks())

    def _seen(self, request: ServiceRequest, snapshot: Snapshot) -> Status:
        """The status of an applied service of which only the cluster is asked."""
        seen, digest = as_scaled(request, snapshot), request.spec.digest()
        return derive_cluster(
            seen,
            readiness=readiness(snapshot, seen.spec, digest),
            diagnosis=self._diagnose(seen, snapshot, self._clock(), digest),
            fresh=snapshot.fresh,
            late=False,
        )

    def _status(self, request: ServiceRequest, view: View) -> Status:
        now = self._clock()
        snapshot = self._cache.snapshot(request.identity)
        if (intent := again(view, snapshot, now)) is not None:
            view = self._workers.submit(intent, force=True)
        seen, digest = as_scaled(request, snapshot), request.spec.digest()
        # Before it is applied, what there is may be of an earlier specification, which says nothing of this one.
        there = view.settled or (snapshot.statefulset is not None and snapshot.statefulset.digest == digest)
        status = derive(
            seen,
            view,
            readiness=readiness(snapshot, seen.spec, digest),
            diagnosis=self._diagnose(seen, snapshot, now, digest) if there else None,
            fresh=snapshot.fresh,
            now=now,
        )
        self._sweep_memory(now)
        return self._fail(request, status) if status.phase is Phase.FAILED else status

    def _diagnose(self, request: ServiceRequest, snapshot: Snapshot, now: float, digest: str) -> Diagnosis | None:
        at = datetime.fromtimestamp(now, UTC)
        # The objects carry the hash of what was applied, also where somebody scaled them since.
        found = diagnose(
            snapshot, request.spec, at, self._last_words.of(request.stack), graces=self._graces, digest=digest
        )
        if found is None or found.wants_logs is None:
            return found
        # The verdict waits for the lines that explain it: one poll, not more.
        awaited = self._last_words.want(request.stack, found.wants_logs)
        return replace(found, final=False) if awaited else found

    def _fail(self, request: ServiceRequest, status: Status) -> Status:
        """Remember a failure, and remove what ends with its execution: Flyte never asks for it after FAILED."""
        self._failures.add(request, status, self._clock())
        if request.identity.owner and request.spec.deletion_policy == "Delete":
            self._workers.submit(Intent(Kind.REMOVE, request, unused=True))
        return status

    def _sweep_memory(self, now: float) -> None:
        if now - self._swept_at < REMEMBERED_SECONDS / 4:
            return
        self._swept_at = now
        self._workers.forget_settled(REMEMBERED_SECONDS)
        self._failures.forget_old(now)


def _expired(request: ServiceRequest) -> Status:
    return Status(
        request.stack,
        Phase.FAILED,
        reason="StartDeadlineExceeded",
        message="its start deadline passed before it was applied",
        hint="run it again, with a longer startDeadline if it needs one",
        wanted=request.spec.replicas,
    )
