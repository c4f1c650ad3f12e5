"""Durations as people write them: `90s`, `15m`, `1h30m`, `7d`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from provisioner.spec.base import shape

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_LONGEST = 365 * 86400

ACCEPTED = "a duration such as 90s, 15m, 1h30m or 7d, more than 0s and at most 365d"


def parse_duration(text: str) -> int:
    """The seconds of a duration.

    Args:
        text: Days, hours, minutes and seconds, each at most once, in that order.

    Raises:
        ValueError: It is not a duration, zero, or longer than a year.

    Example:
        >>> parse_duration("1h30m")
        5400
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(ACCEPTED)
    seconds = sum(int(count) * unit for count, unit in zip(match.groups(), _UNITS.values(), strict=True) if count)
    if not 0 < seconds <= _LONGEST:
        raise ValueError(ACCEPTED)
    return seconds


def format_duration(seconds: int) -> str:
    """The shortest way to write a duration; the inverse of `parse_duration`.

    Args:
        seconds: Whole seconds, not negative.

    Example:
        >>> format_duration(5400)
        '1h30m'
    """
    parts = []
    for unit, size in _UNITS.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _coerce(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(ACCEPTED)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(ACCEPTED)
    return parse_duration(value if isinstance(value, str) else f"{int(value)}s")


Duration = Annotated[
    int,
    BeforeValidator(_coerce),
    shape(r"(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?", "integer"),
    PlainSerializer(format_duration, return_type=str),
]
