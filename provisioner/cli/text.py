"""How a time is shown: as short as kubectl shows it."""

from __future__ import annotations

from datetime import datetime, timedelta


def age(since: datetime | None, now: datetime) -> str | None:
    """How long ago something was.

    Args:
        since: When; None if that is not known.
        now: The time.

    Example:
        >>> age(datetime(2026, 1, 1), datetime(2026, 1, 1) + timedelta(hours=3, minutes=5))
        '3h5m'
    """
    return None if since is None else span(now - since)


def span(time: timedelta) -> str:
    """How long something took or is.

    Args:
        time: Negative counts as nothing.

    Example:
        >>> span(timedelta(minutes=3, seconds=11))
        '3m11s'
    """
    seconds = max(0, int(time.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"
