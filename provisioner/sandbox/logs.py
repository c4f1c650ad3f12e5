"""The logs of a sandbox's processes: never larger than a bound, and quoted when something fails."""

from __future__ import annotations

import os
from pathlib import Path

LOG_LIMIT = 8 * 1024 * 1024
"""Bytes of a log above which it is moved aside (its last eighth is kept)."""


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, as one text; "" when there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 8192))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def bound_log(log: Path) -> None:
    """Move a log that has grown too large aside, without disturbing its writer."""
    if not log.exists() or log.stat().st_size <= LOG_LIMIT:
        return
    with log.open("rb") as stream:
        stream.seek(-LOG_LIMIT // 8, os.SEEK_END)
        log.with_suffix(".log.1").write_bytes(stream.read())
    # The writer appends, so it goes on at the new end.
    os.truncate(log, 0)
