"""The keyed queue: which operation may run next.

A plain value with a clock passed in; threads live in `workers`. Its guarantees:

1. At most one operation per key runs at a time.
2. The newest intent of a key wins. An older one that has not begun never
   runs; one that runs is finished first, or cancelled when a removal
   supersedes it.
3. An intent equal to the one that is wanted already changes nothing.
4. Every intent that is wanted ends settled (done, or failed for good) as long
   as somebody takes and finishes operations; a transient failure is repeated
   after a delay that grows up to a cap and carries jitter. A removal is never
   given up, whatever it fails with.
5. Projects take turns: one with many services does not keep another waiting.
6. What is to be applied anew is begun first, without an engine, and waits for
   one only if that was not enough. So it never waits behind an engine.
7. Neither submitting, taking, finishing nor viewing costs more when there are
   more keys (beyond the logarithm of a heap).
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from provisioner.cluster.objects import Pod
from provisioner.control.request import ServiceRequest
from provisioner.errors import PermanentError, ProvisionerError


class Kind(StrEnum):
    """What is to be done for a service."""

    APPLY = "apply"
    REMOVE = "remove"


class Lane(StrEnum):
    """Who carries an operation out: two lanes, so that what takes milliseconds does not wait for what takes seconds."""

    BEGIN = "begin"
    ENGINE = "engine"


@dataclass(frozen=True)
class Intent:
    """What is wanted for one stack.

    Attributes:
        kind: Apply or remove.
        request: For which service.
        repair: Compare with the cluster first, because objects were lost or changed.
        stuck: Pods of an outdated revision that hold the rollout up, to be deleted.
        unused: Remove it only if nobody holds a lease on it.
    """

    kind: Kind
    request: ServiceRequest
    repair: bool = False
    stuck: tuple[Pod, ...] = ()
    unused: bool = False

    @property
    def key(self) -> str:
        """The stack: operations of one key never overlap."""
        return self.request.stack

    def same(self, other: Intent) -> bool:
        """Whether both lead to the same state."""
        if self.kind is not other.kind:
            return False
        if self.kind is Kind.REMOVE:
            return self.unused == other.unused
        return self.request.same(other.request)


@dataclass(frozen=True)
class Operation:
    """One run of an intent.

    Attributes:
        number: Counts all operations of the queue.
        intent: What is done.
        failures: How often it failed before, in a row.
        waited: Seconds between the moment when it was due and its start.
        lane: Whether it may use an engine.
    """

    number: int
    intent: Intent
    failures: int
    waited: float = 0.0
    lane: Lane = Lane.ENGINE

    @property
    def name(self) -> str:
        """What is done, in a word: `begin`, `apply` or `remove`."""
        return self.lane.value if self.lane is Lane.BEGIN else self.intent.kind.value


@dataclass(frozen=True)
class Done:
    """The operation achieved what was wanted.

    Attributes:
        changes: One line per object that was changed.
        users: Who still uses what was to be removed if nobody does; it stays.
    """

    changes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Begun:
    """All was done that can be without an engine; now one is needed."""


@dataclass(frozen=True)
class Again:
    """Nothing failed, but it is not finished: look again later.

    Attributes:
        after: Seconds from now.
        message: What is waited for.
    """

    after: float
    message: str


@dataclass(frozen=True)
class Failed:
    """The operation failed; a `PermanentError` settles the intent.

    Attributes:
        error: Why.
    """

    error: ProvisionerError


@dataclass(frozen=True)
class Withdrawn:
    """What was to be applied has been removed meanwhile, by somebody else: it is gone, and stays so."""


Outcome = Done | Begun | Again | Failed | Withdrawn


@dataclass(frozen=True)
class Backoff:
    """How long to wait after failures in a row.

    Attributes:
        first: Seconds after the first failure.
        cap: Longest wait in seconds.
        stalled_after: Failures in a row from which it counts as stalled.
    """

    first: float = 1.0
    cap: float = 60.0
    stalled_after: int = 8

    def delay(self, failures: int, jitter: float) -> float:
        """Seconds to wait.

        Args:
            failures: Failures in a row, at least 1.
            jitter: From 0 to 1; half of the delay is spread by it.
        """
        full = min(self.cap, self.first * 2.0 ** min(failures - 1, 32))
        return full * (0.5 + 0.5 * jitter)


@dataclass(frozen=True)
class View:
    """What the queue knows of one key.

    Attributes:
        intent: What is wanted.
        running: The kind of operation that runs now, if one does.
        settled: Whether nothing is left to do for the intent.
        error: Why the last run failed, if it did.
        waiting: What is waited for, after `Again`.
        failures: Failures in a row.
        stalled: Whether it failed so often that a person should look.
        changes: What the last successful run changed.
        settled_at: When it was settled, on the queue's clock.
        users: Who still uses what was to be removed if nobody does.
    """

    intent: Intent
    running: Kind | None
    settled: bool
    error: ProvisionerError | None
    waiting: str
    failures: int
    stalled: bool
    changes: tuple[str, ...]
    settled_at: float
    users: tuple[str, ...] = ()


@dataclass
class _Entry:
    intent: Intent
    running: Operation | None = None
    settled: bool = False
    error: ProvisionerError | None = None
    waiting: str = ""
    failures: int = 0
    changes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    settled_at: float = 0.0
    begun: bool = False
    queued: Lane | None = None
    due: float = 0.0

    @property
    def lane(self) -> Lane:
        begins = self.intent.kind is Kind.APPLY and not (self.begun or self.intent.repair or self.intent.stuck)
        return Lane.BEGIN if begins else Lane.ENGINE


class KeyedQueue:
    """See the module's docstring for what it guarantees. Not thread-safe.

    Args:
        backoff: Waiting times after failures.
        jitter: Gives a number from 0 to 1.
    """

    def __init__(self, backoff: Backoff | None = None, jitter: Callable[[], float] = random.random) -> None:
        self.backoff = backoff or Backoff()
        self._jitter = jitter
        self._entries: dict[str, _Entry] = {}
        self._ready: dict[Lane, OrderedDict[str, deque[str]]] = {lane: OrderedDict() for lane in Lane}
        self._delayed: list[tuple[float, int, str]] = []
        self._number = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def settled_before(self, limit: float) -> list[str]:
        """The keys that were settled before a time."""
        return [key for key, entry in self._entries.items() if entry.settled and entry.settled_at < limit]

    def submit(self, intent: Intent, now: float, *, force: bool = False) -> Operation | None:
        """Say what is wanted for a key.

        Args:
            intent: The newest intent.
            now: The time.
            force: Run even if it equals the one wanted before.

        Returns:
            A running operation that the caller should cancel, if there is one.
        """
        entry = self._entries.get(intent.key)
        if entry is None:
            entry = self._entries[intent.key] = _Entry(intent)
        elif not force and entry.intent.same(intent):
            return None
        entry.intent = intent
        entry.settled, entry.error, entry.waiting, entry.failures, entry.users = False, None, "", 0, ()
        entry.begun, entry.due = False, now
        if entry.running is None:
            self._enqueue(intent.key, entry)
            return None
        superseded = entry.running.intent.kind is Kind.APPLY and intent.kind is Kind.REMOVE
        return entry.running if superseded else None

    def take(self, now: float, lane: Lane) -> Operation | None:
        """The next operation to run in a lane, or None when nothing is due there."""
        while self._delayed and self._delayed[0][0] <= now:
            _, _, key = heapq.heappop(self._delayed)
            entry = self._entries.get(key)
            if entry is not None and entry.queued is None and not entry.settled and entry.due <= now:
                self._enqueue(key, entry)
        ready = self._ready[lane]
        while ready:
            project, keys = next(iter(ready.items()))
            key = keys.popleft()
            if keys:
                ready.move_to_end(project)
            else:
                del ready[project]
            entry = self._entries.get(key)
            if entry is None or entry.queued is not lane:
                continue  # it changed lanes since
            entry.queued = None
            self._waiting -= 1
            if entry.settled or entry.running is not None:
                continue
            self._number += 1
            entry.running = Operation(self._number, entry.intent, entry.failures, max(0.0, now - entry.due), lane)
            return entry.running
        return None

    def finish(self, operation: Operation, outcome: Outcome, now: float) -> None:
        """Say how an operation ended; its key is free for the next one then."""
        key = operation.intent.key
        entry = self._entries[key]
        if entry.running != operation:
            raise ValueError(f"operation {operation.number} of {key} does not run")
        entry.running = None
        if entry.intent is not operation.intent:
            # It could not run before.
            entry.due = now
            self._enqueue(key, entry)
            return
        if isinstance(outcome, Begun):
            entry.begun, entry.due, entry.waiting = True, now, ""
            self._enqueue(key, entry)
            return
        if isinstance(outcome, Again):
            entry.waiting, entry.error, entry.failures = outcome.message, None, 0
            self._delay(key, entry, now + outcome.after)
            return
        entry.waiting = ""
        if isinstance(outcome, Withdrawn):
            entry.intent, outcome = Intent(Kind.REMOVE, entry.intent.request), Done()
        if isinstance(outcome, Done):
            entry.error, entry.failures = None, 0
            entry.changes = outcome.changes or entry.changes
            entry.users = outcome.users
            entry.settled, entry.settled_at = True, now
            return
        entry.error = outcome.error
        entry.failures += 1
        if isinstance(outcome.error, PermanentError) and entry.intent.kind is Kind.APPLY:
            entry.settled, entry.settled_at = True, now
        else:
            self._delay(key, entry, now + self.backoff.delay(entry.failures, self._jitter()))

    def next_due(self) -> float | None:
        """When the next delayed operation is due; None when none is delayed."""
        return self._delayed[0][0] if self._delayed else None

    def view(self, key: str) -> View | None:
        """What is known of a key, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        return View(
            intent=entry.intent,
            running=entry.running.intent.kind if entry.running else None,
            settled=entry.settled,
            error=entry.error,
            waiting=entry.waiting,
            failures=entry.failures,
            stalled=entry.failures >= self.backoff.stalled_after,
            changes=entry.changes,
            settled_at=entry.settled_at,
            users=entry.users,
        )

    def views(self) -> list[View]:
        """What is known of every key."""
        return [found for key in self._entries if (found := self.view(key)) is not None]

    def forget(self, key: str) -> bool:
        """Drop a settled key; says whether it was dropped."""
        entry = self._entries.get(key)
        if entry is None or entry.running is not None or not entry.settled or entry.queued is not None:
            return False
        del self._entries[key]
        return True

    def _enqueue(self, key: str, entry: _Entry) -> None:
        lane = entry.lane
        if entry.queued is lane:
            return
        if entry.queued is None:
            self._waiting += 1
        entry.queued = lane
        self._ready[lane].setdefault(entry.intent.request.identity.project, deque()).append(key)

    def _delay(self, key: str, entry: _Entry, due: float) -> None:
        entry.due = due
        self._number += 1
        heapq.heappush(self._delayed, (due, self._number, key))
