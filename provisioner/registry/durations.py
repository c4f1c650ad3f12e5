"""Durations as Flyte's operators write them: `100s`, `1m30s`, `500ms`.

Flyte's configuration is read by Go programs, so the rules are those of Go's
`time.ParseDuration`, to the letter: a value that the operators' own tools
refuse must not be accepted here, and the other way round.
"""

from __future__ import annotations

import re
from decimal import Decimal

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, the micro sign
    "μs": 10**3,  # U+03BC, the Greek letter
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LONGEST = 2**63 - 1
# [^\D...] would also take digits of other scripts, which Go does not.
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")


def parse_duration(text: str) -> float:
    """Read a duration by the rules of Go's `time.ParseDuration`.

    Args:
        text: For example `1m30s`, `-1.5h`, `0`.

    Returns:
        Seconds.

    Raises:
        ValueError: The text is not a duration; the message says what is wrong.

    Example:
        >>> parse_duration("1m30s")
        90.0
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    if not rest:
        raise ValueError("is empty")
    total, place = 0, 0
    while place < len(rest):
        part = _PART.match(rest, place)
        if part is None or not (part[1] or part[2]):
            if re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", rest[place:]):
                raise ValueError("has no unit; write for example 10s")
            raise ValueError("is not a duration; write for example 100s, 1m30s or 500ms")
        unit = _NANOSECONDS.get(part[3])
        if unit is None:
            raise ValueError(f"has the unknown unit {part[3]!r}; use one of ns, us, ms, s, m, h")
        total += int(Decimal(f"{part[1] or 0}.{part[2] or 0}") * unit)
        place = part.end()
        if total > _LONGEST + (sign < 0):
            raise ValueError("is longer than 292 years")
    return sign * total / 10**9


def format_duration(seconds: float) -> str:
    """Write a duration in the shortest form that reads back as the same, to a millisecond.

    Args:
        seconds: Zero or more.

    Example:
        >>> format_duration(90.5)
        '1m30.5s'
    """
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if minutes else ""
    if rest:
        text += f"{Decimal(rest) / 1000:f}s"
    return text
