"""Which requests for a stack were withdrawn: so that no other server carries one out that it still has in its queue.

A server that could not apply a request, because another one held the stack,
tries again after a while. By then the service may have been removed, on the
other server. What is there then is what is there before a first apply:
nothing. So a removal leaves a note of a few bytes in the backend for an hour.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from provisioner.engine.origin import FOLDER
from provisioner.engine.store import Store

_NOTES = f"{FOLDER}/removed"
# Far longer than any server waits before it tries again.
_KEPT = timedelta(hours=1)
_TIDY_SECONDS = 600.0
# A request that has been written down somewhere says its time with so many decimals.
_DECIMALS = 3


class Tombstones:
    """The notes of one backend; safe for several threads.

    Args:
        store: The backend's objects; None when only the CLI can reach them,
            and nothing is noted.
        monotonic: A clock that never goes back, in seconds.
    """

    def __init__(self, store: Store | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._tidied_at = monotonic()

    def bury(self, stack: str, accepted_at: float) -> None:
        """Note that requests for a stack are withdrawn; to be called before it is removed.

        Args:
            stack: Name of the stack.
            accepted_at: Up to which time they were accepted, in seconds since the epoch.

        Raises:
            ProvisionerError: The backend cannot be written.
        """
        if self._store is None:
            return
        path = f"{_NOTES}/{stack}"
        self._store.write(path, repr(max(round(accepted_at, _DECIMALS), self._read(path))).encode())
        self._tidy()

    def withdrawn(self, stack: str, accepted_at: float) -> bool:
        """Whether a request was withdrawn.

        Args:
            stack: Name of its stack.
            accepted_at: When it was accepted, in seconds since the epoch.

        Raises:
            TransientError: The backend cannot be reached.
        """
        return self._store is not None and round(accepted_at, _DECIMALS) <= self._read(f"{_NOTES}/{stack}")

    def _read(self, path: str) -> float:
        assert self._store is not None  # noqa: S101 - the callers have looked
        content = self._store.read(path)
        try:
            return float(content) if content is not None else float("-inf")
        except ValueError:
            # Cut short by a full disk: it says nothing.
            return float("-inf")

    def _tidy(self) -> None:
        assert self._store is not None  # noqa: S101 - the caller has looked
        with self._lock:
            if self._monotonic() - self._tidied_at < _TIDY_SECONDS:
                return
            self._tidied_at = self._monotonic()
        limit = datetime.now(UTC) - _KEPT
        for entry in self._store.entries(_NOTES):
            if entry.modified is not None and entry.modified < limit:
                self._store.delete(f"{_NOTES}/{entry.name}")
