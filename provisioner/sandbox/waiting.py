"""Wait for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def within(timeout: float, condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds.

    Args:
        timeout: Seconds.
        condition: Must not block for long.

    Returns:
        Whether it held in time.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
