"""Threads around the keyed queue: they run operations and stop cleanly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from provisioner.control import metrics
from provisioner.control.queue import (
    Again,
    Begun,
    Done,
    Failed,
    Intent,
    KeyedQueue,
    Lane,
    Operation,
    Outcome,
    View,
    Withdrawn,
)
from provisioner.engine import Cancellation
from provisioner.errors import PermanentError, ProvisionerError
from provisioner.tracing import span

log = structlog.get_logger(__name__)

Run = Callable[[Operation, Cancellation], Outcome]

# Threads that begin services: they wait for the API server, and take milliseconds.
_BEGINNERS = 4


class Workers:
    """A bounded number of threads that carry out what the queue says.

    Args:
        count: Number of threads that may use an engine.
        run: Carries out one operation. A `ProvisionerError` that it raises is
            the outcome; anything else is a fault of the program, reported as
            a permanent failure of this one operation.
        queue: The queue, used by nobody else.
        clock: The time in seconds since the epoch.
    """

    def __init__(
        self, count: int, run: Run, queue: KeyedQueue | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._count = count
        self._run = run
        self._queue = queue or KeyedQueue()
        self._clock = clock
        self._changed = threading.Condition()
        self._cancellations: dict[int, Cancellation] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = False

    def start(self) -> None:
        """Start the threads."""
        for lane, count in ((Lane.BEGIN, _BEGINNERS), (Lane.ENGINE, self._count)):
            for index in range(count):
                name = f"operation-{lane.value}-{index}"
                thread = threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def alive(self) -> bool:
        """Whether every thread runs."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def submit(self, intent: Intent, *, force: bool = False) -> View:
        """Say what is wanted; returns at once with what is known."""
        with self._changed:
            superseded = self._queue.submit(intent, self._clock(), force=force)
            cancellation = self._cancellations.get(superseded.number) if superseded else None
            view = self._queue.view(intent.key)
            assert view is not None  # noqa: S101 - it was submitted in the line above
            metrics.QUEUED.set(len(self._queue))
            self._changed.notify_all()
        if cancellation is not None:
            cancellation.cancel()
        return view

    def view(self, key: str) -> View | None:
        """What is known of a key."""
        with self._changed:
            return self._queue.view(key)

    def views(self) -> list[View]:
        """What is known of every key."""
        with self._changed:
            return self._queue.views()

    def forget_settled(self, older_than: float) -> int:
        """Drop what was settled more than `older_than` seconds ago; says how many."""
        with self._changed:
            old = self._queue.settled_before(self._clock() - older_than)
            return sum(self._queue.forget(key) for key in old)

    def cancel_running(self) -> None:
        """Cancel what runs; it is tried again later."""
        with self._changed:
            running = list(self._cancellations.values())
        for cancellation in running:
            cancellation.cancel()

    def stop(self, timeout: float, cancel_after: float) -> bool:
        """Begin nothing more; wait for what runs, then cancel it.

        Args:
            timeout: Seconds in all.
            cancel_after: Seconds after which running operations are cancelled.

        Returns:
            Whether every operation had ended.
        """
        started = self._clock()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._cancellations, timeout=min(cancel_after, timeout))
        self.cancel_running()
        for thread in self._threads:
            thread.join(max(0.0, timeout - (self._clock() - started)))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, lane: Lane) -> None:
        while (taken := self._next(lane)) is not None:
            operation, cancellation = taken
            outcome = self._outcome(operation, cancellation)
            with self._changed:
                del self._cancellations[operation.number]
                self._queue.finish(operation, outcome, self._clock())
                metrics.RUNNING.set(len(self._cancellations))
                self._changed.notify_all()

    def _next(self, lane: Lane) -> tuple[Operation, Cancellation] | None:
        with self._changed:
            while not self._stopping:
                now = self._clock()
                operation = self._queue.take(now, lane)
                if operation is not None:
                    cancellation = self._cancellations[operation.number] = Cancellation()
                    metrics.QUEUED.set(len(self._queue))
                    metrics.RUNNING.set(len(self._cancellations))
                    metrics.WAIT_SECONDS.labels(operation.name).observe(operation.waited)
                    return operation, cancellation
                due = self._queue.next_due()
                self._changed.wait(None if due is None else max(0.0, due - now))
            return None

    def _outcome(self, operation: Operation, cancellation: Cancellation) -> Outcome:
        intent = operation.intent
        bound = log.bind(stack_name=intent.key, operation=operation.name, failures=operation.failures)
        started = time.monotonic()
        who = intent.request.identity
        with span(
            f"operation {operation.name}",
            execution=who.owner,
            project=who.project,
            domain=who.domain,
            stack=who.stack,
        ) as traced:
            outcome = self._carried_out(operation, cancellation, bound)
            traced.tell(outcome=_result(outcome))
            if isinstance(outcome, Failed):
                traced.fail(outcome.error.reason, outcome.error.message)
        metrics.RUN_SECONDS.labels(operation.name).observe(time.monotonic() - started)
        metrics.OPERATIONS.labels(operation.name, _result(outcome)).inc()
        if isinstance(outcome, Failed):
            bound.warning("operation failed", reason=outcome.error.reason, error=outcome.error.message)
        elif isinstance(outcome, Withdrawn):
            bound.info("it was removed elsewhere")
        elif isinstance(outcome, Done):
            bound.info("operation done", changes=len(outcome.changes))
        return outcome

    def _carried_out(
        self, operation: Operation, cancellation: Cancellation, bound: structlog.stdlib.BoundLogger
    ) -> Outcome:
        try:
            return self._run(operation, cancellation)
        except ProvisionerError as error:
            return Failed(error)
        except Exception as error:  # noqa: BLE001 - one faulty operation must not end its worker
            bound.exception("operation raised what it must not")
            return Failed(
                PermanentError(
                    f"{type(error).__name__}: {error}",
                    reason="InternalError",
                    hint="a fault of the provisioner: its log has the traceback",
                )
            )


def _result(outcome: Outcome) -> str:
    if isinstance(outcome, Done):
        return "done"
    if isinstance(outcome, Begun):
        return "begun"
    if isinstance(outcome, Again):
        return "again"
    if isinstance(outcome, Withdrawn):
        return "withdrawn"
    return "failed" if isinstance(outcome.error, PermanentError) else "retried"
