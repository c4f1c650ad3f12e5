"""One installer at a time, across processes.

`flock` is released by the kernel when its holder is gone, however it went,
so nothing has to be cleaned up after a kill. The holder writes who it is into
the file, for the one who waits.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.2


def _holder(descriptor: int) -> str:
    try:
        known = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(known['pid'])}, since {known['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"  # it has just taken the lock and not written yet


@contextmanager
def exclusive(path: Path, on_wait: Callable[[str], None] | None) -> Iterator[int]:
    """Hold a lock for the time of a `with` block.

    Args:
        path: The lock's file; it stays.
        on_wait: Called once with who holds the lock, when it is not free.
            None for not to wait.

    Yields:
        The descriptor; a child that inherits it keeps the lock taken.

    Raises:
        BlockingIOError: The lock is not free, and this call does not wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if on_wait is None:
                    raise
                if not told:
                    on_wait(_holder(descriptor))
                    told = True
                time.sleep(_POLL_S)
        os.ftruncate(descriptor, 0)
        since = time.strftime("%H:%M:%S")
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)
