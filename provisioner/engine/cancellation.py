"""One request to stop, seen by whoever must act on it.

An operation is cancelled from another thread than the one that runs it: by a
newer intent, by SIGTERM, by a user's Ctrl-C. A `Cancellation` is handed to the
operation before it starts, so there is no moment at which it cannot be stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cancellation:
    """Stops one or several operations, gracefully first; usable from any thread and before they start.

    Example:
        >>> cancellation = Cancellation()
        >>> cancellation.cancel()
        >>> cancellation.cancelled
        True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Ask every operation that carries this to stop; a repeat changes nothing."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    @contextmanager
    def listen(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` once when cancelled, at once if that has happened already.

        Args:
            listener: Must be quick and must not raise; called in the thread
                that cancels.
        """
        with self._lock:
            already = self._cancelled
            if not already:
                self._listeners.append(listener)
        if already:
            listener()
        try:
            yield
        finally:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)
