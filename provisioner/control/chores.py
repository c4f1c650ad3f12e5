"""Small calls to the cluster that a poll needs and must not wait for: done aside, their outcome remembered.

A poll is answered from memory. What it needs of the API server (a Lease taken,
a job looked at) it asks for here, and the next poll has the outcome.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from provisioner.control.queue import Backoff
from provisioner.errors import PermanentError, ProvisionerError

log = structlog.get_logger(__name__)

_THREADS = 4
# Outcomes that nobody has asked for so long are dropped.
_REMEMBERED_SECONDS = 3600.0


@dataclass(frozen=True)
class Outcome:
    """How a chore ended.

    Attributes:
        value: What it gave.
        error: Why it failed, if it did.
    """

    value: Any = None
    error: ProvisionerError | None = None


@dataclass
class _Chore:
    outcome: Outcome | None = None
    at: float = 0.0
    asked: float = 0.0
    running: bool = False
    failures: int = 0
    timer: threading.Timer | None = None
    then: Callable[[], object] | None = None


class Chores:
    """Runs chores, each key at most once at a time.

    Args:
        backoff: Waiting times of a chore that is repeated until it succeeds.
        clock: Seconds, never going back.
    """

    def __init__(self, backoff: Backoff | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._lock = threading.Lock()
        self._chores: dict[Hashable, _Chore] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="chore")
        self._stopped = False

    def ask(self, key: Hashable, run: Callable[[], object], *, fresh: Callable[[object], float]) -> Outcome | None:
        """The last outcome of a chore; begins it when there is none that is fresh.

        Args:
            key: What it is about.
            run: Does it.
            fresh: Seconds for which what it gave counts; a failure counts for a second at least.

        Returns:
            None until it has ended once.
        """
        now = self._clock()
        with self._lock:
            chore = self._chores.setdefault(key, _Chore())
            chore.asked = now
            if not chore.running and chore.timer is None and self._due(chore, now, fresh):
                self._begin(key, chore, run, repeat=False)
            return chore.outcome

    def insist(self, key: Hashable, run: Callable[[], object]) -> None:
        """Do something after what runs for its key, and repeat it until it succeeds or cannot.

        Its outcome is not remembered: who asks for the key afterwards has it done anew.

        Args:
            key: What it is about.
            run: Does it.
        """
        with self._lock:
            chore = self._chores.setdefault(key, _Chore())
            chore.asked = self._clock()
            if chore.running:
                chore.then = run
            elif chore.timer is None:
                self._begin(key, chore, run, repeat=True)

    def forget(self, key: Hashable) -> None:
        """Drop an outcome, so that the next who asks has it done anew.

        Args:
            key: What it was about.
        """
        with self._lock:
            chore = self._chores.get(key)
            if chore is not None and not chore.running and chore.timer is None:
                del self._chores[key]

    def stop(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._stopped = True
            for chore in self._chores.values():
                if chore.timer is not None:
                    chore.timer.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _due(self, chore: _Chore, now: float, fresh: Callable[[object], float]) -> bool:
        outcome = chore.outcome
        if outcome is None:
            return True
        wait = fresh(outcome.value) if outcome.error is None else self._backoff.delay(max(1, chore.failures), 1.0)
        return now - chore.at >= wait

    def _begin(self, key: Hashable, chore: _Chore, run: Callable[[], object], *, repeat: bool) -> None:
        if self._stopped:
            return
        chore.running, chore.timer = True, None
        self._pool.submit(self._run, key, chore, run, repeat)
        self._sweep()

    def _run(self, key: Hashable, chore: _Chore, run: Callable[[], object], repeat: bool) -> None:
        try:
            outcome = Outcome(run())
        except ProvisionerError as error:
            outcome = Outcome(error=error)
        except Exception as error:
            log.exception("chore raised what it must not", chore=str(key))
            outcome = Outcome(error=PermanentError(f"{type(error).__name__}: {error}", reason="InternalError"))
        with self._lock:
            chore.outcome, chore.at, chore.running = None if repeat else outcome, self._clock(), False
            chore.failures = 0 if outcome.error is None else chore.failures + 1
            then, chore.then = chore.then, None
            if then is not None:
                self._begin(key, chore, then, repeat=True)
                return
            if outcome.error is None or not repeat:
                return
            log.warning("chore failed", chore=str(key), reason=outcome.error.reason, error=outcome.error.message)
            if isinstance(outcome.error, PermanentError) or self._stopped:
                return  # the janitor does what is left
            delay = self._backoff.delay(chore.failures, 0.5)
            chore.timer = threading.Timer(delay, self._again, (key, chore, run))
            chore.timer.daemon = True
            chore.timer.start()

    def _again(self, key: Hashable, chore: _Chore, run: Callable[[], object]) -> None:
        with self._lock:
            self._begin(key, chore, run, repeat=True)

    def _sweep(self) -> None:
        limit = self._clock() - _REMEMBERED_SECONDS
        for key, chore in list(self._chores.items()):
            if not chore.running and chore.timer is None and chore.asked < limit:
                del self._chores[key]
