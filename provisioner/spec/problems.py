"""Turn a validation error into problems a person can act on: path, value, what is accepted."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from provisioner.errors import Problem

_SHOWN = 60
# Values below these fields may be credentials that somebody put there by mistake.
_HIDDEN = ("env",)


def _path(location: Sequence[int | str]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text or "spec"


def _shown(value: Any, location: Sequence[int | str]) -> str:
    if isinstance(value, dict | list | tuple) or any(part in _HIDDEN for part in location):
        return ""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _untagged(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without what pydantic adds to a path: the tag of a variable's kind, the mark of a key."""
    if "env" in location:
        tag = location.index("env") + 2
        location = location[:tag] + location[tag + 1 :]
    return tuple(part for part in location if part != "[key]")


def _fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The names a user may write in the mapping at `location` (its last part is the unknown name)."""
    current = [model]
    for part in location[:-1]:
        if isinstance(part, str):
            # A part that is no field is the key of a mapping, such as a variable's name.
            current = [inner for outer in current for inner in _nested(outer, part)] or current
    return [field.alias or name for candidate in current for name, field in candidate.model_fields.items()]


def _nested(model: type[BaseModel], name: str) -> list[type[BaseModel]]:
    for key, field in model.model_fields.items():
        if name in (key, field.alias):
            return list(_models_in(field.annotation))
    return []


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def _accepted(kind: str, message: str, name: str, candidates: list[str]) -> str:
    if kind == "extra_forbidden":
        close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
        if close:
            return f"unknown field; did you mean {close[0]}?"
        return f"unknown field; known are {', '.join(candidates)}" if candidates else "unknown field"
    if kind == "missing":
        return "required, and not given"
    if kind == "rule":
        return f"must be {message}"
    if kind == "value_error":
        return "must be " + message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def problems_of(error: ValidationError, model: type[BaseModel], prefix: Sequence[int | str] = ()) -> list[Problem]:
    """All problems of a failed validation, in the order of the document.

    Args:
        error: What pydantic raised.
        model: The model that was validated; its field names make suggestions.
        prefix: Where the model stands in the user's document.

    Returns:
        At least one problem; a value under `env` is never shown.
    """
    problems = []
    for item in error.errors():
        location = _untagged(tuple(item["loc"]))
        kind, message = item["type"], item["msg"]
        accepted = _accepted(kind, message, str(location[-1]) if location else "", _fields_at(model, location))
        # A rule names the values that it is about.
        value = "" if kind in ("missing", "extra_forbidden", "rule") else _shown(item["input"], location)
        problems.append((location, Problem(_path((*prefix, *location)), value, accepted)))
    # pydantic counts wrong items as missing ones: "at least 1 item" under a list with one wrong item.
    parents = {location[:length] for location, _ in problems for length in range(len(location))}
    return [
        problem
        for (location, problem), item in zip(problems, error.errors(), strict=True)
        if item["type"] != "too_short" or location not in parents
    ]
