"""How settings and rules of the janitor are written: durations, shares, lists."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer
from pydantic_settings import NoDecode

from provisioner.janitor.policy import Source
from provisioner.settings import Written
from provisioner.spec import format_duration, parse_duration

_NEVER = "never"
_LOCK_PODS = re.compile(r"[a-z0-9-]+/[a-z0-9.-]+")
_DURATION = "a duration such as 90s, 15m, 1h30m or 7d, or 0s; at most 365d"
_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?)(%?)")


def _seconds(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value}s"
    if not isinstance(value, str):
        raise ValueError(_DURATION)
    if value.strip() in ("0", "0s"):
        return 0
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(_DURATION) from error


def _seconds_or_never(value: Any) -> Any:
    return None if value is None or value == _NEVER else _seconds(value)


def _share(value: Any) -> Any:
    if isinstance(value, str):
        match = _SHARE.fullmatch(value.strip())
        if match is None:
            raise ValueError("a share such as 50%, or a number from 0 to 1")
        return float(match[1]) / (100 if match[2] else 1)
    return value


def _words(value: Any) -> Any:
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


def _lock_pods(value: str) -> str:
    if value and _LOCK_PODS.fullmatch(value) is None:
        raise ValueError("NAMESPACE/PREFIX, as flyte/data-service-provisioner-")
    return value


def _percent(value: float) -> str:
    return f"{value * 100:g}%"


Wait = Annotated[
    int,
    BeforeValidator(_seconds),
    PlainSerializer(format_duration, return_type=str),
    Written("duration, as 15m", format_duration),
]
WaitOrNever = Annotated[
    int | None,
    BeforeValidator(_seconds_or_never),
    PlainSerializer(lambda value: _NEVER if value is None else format_duration(value), return_type=str),
    Written("duration, as 15m, or never", format_duration),
]
Share = Annotated[
    float,
    BeforeValidator(_share),
    Field(ge=0, le=1),
    PlainSerializer(_percent, return_type=str),
    Written("share, as 50% or 0.5", _percent),
]
_LIST = Written("list, separated by commas")
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), _LIST]
LockPods = Annotated[str, AfterValidator(_lock_pods), Written("NAMESPACE/PREFIX")]
Sources = Annotated[tuple[Source, ...], NoDecode, BeforeValidator(_words), Field(min_length=1), _LIST]
