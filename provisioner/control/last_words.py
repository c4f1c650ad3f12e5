"""The last log lines of containers that a diagnosis asks for, fetched aside from the calls that need them.

A poll is answered from memory, so it cannot wait for kubelet. It asks here,
and the next poll has the lines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from provisioner.cluster import PodRef
from provisioner.errors import ProvisionerError

# A container that restarts says something new; asking again sooner would only burden kubelet.
_FRESH_SECONDS = 20.0


@dataclass
class _Stack:
    lines: dict[str, str] = field(default_factory=dict)
    fetched: dict[PodRef, float] = field(default_factory=dict)
    pending: set[PodRef] = field(default_factory=set)


class LastWords:
    """Log lines by stack and pod.

    Args:
        fetch: Gives the last lines of one run of a container.
        clock: Seconds, never going back.
    """

    def __init__(self, fetch: Callable[[PodRef], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._stacks: dict[str, _Stack] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="last-words")

    def of(self, stack: str) -> Mapping[str, str]:
        """The lines that are known, by pod name."""
        with self._lock:
            known = self._stacks.get(stack)
            return dict(known.lines) if known else {}

    def want(self, stack: str, reference: PodRef) -> bool:
        """Ask for a container's last lines.

        Args:
            stack: Whose container it is.
            reference: Which run of it.

        Returns:
            Whether they are on their way, so that waiting for them is worth it.
        """
        with self._lock:
            known = self._stacks.setdefault(stack, _Stack())
            if reference in known.pending:
                return True
            if self._clock() - known.fetched.get(reference, float("-inf")) < _FRESH_SECONDS:
                return False
            known.pending.add(reference)
        self._pool.submit(self._run, stack, reference)
        return True

    def forget(self, stack: str) -> None:
        """Drop what is known of a stack."""
        with self._lock:
            self._stacks.pop(stack, None)

    def stop(self) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, stack: str, reference: PodRef) -> None:
        try:
            lines = self._fetch(reference)
        except ProvisionerError as error:
            # Said in the place of the lines, since a diagnosis must not wait for them for ever.
            lines = f"(its log cannot be read: {error.message})"
        with self._lock:
            known = self._stacks.get(stack)
            if known is not None:
                known.pending.discard(reference)
                known.fetched[reference] = self._clock()
                known.lines[reference.pod] = lines
