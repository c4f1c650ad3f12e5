"""Turn a validation error into problems a person can act on: path, value, what is accepted."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from provisioner.errors import Problem

_SHOWN = 60
_FIELD = re.compile(r"[a-zA-Z]+(\.[a-zA-Z]+)*")
# Values below these fields may be credentials that somebody put there by mistake.
_HIDDEN = ("env",)


def _path(location: Sequence[int | str]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text or "spec"


def _shown(value: Any, location: Sequence[int | str]) -> str:
    if isinstance(value, dict | list | tuple) or (location and location[0] in _HIDDEN):
        return ""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The names a user may write in the mapping at `location` (its last part is the unknown name)."""
    current: type[BaseModel] | None = model
    for part in location[:-1]:
        if isinstance(part, int) or current is None:
            continue
        current = _nested(current, part)
    return [] if current is None else [field.alias or name for name, field in current.model_fields.items()]


def _nested(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    for key, field in model.model_fields.items():
        if name in (key, field.alias):
            return next(_models_in(field.annotation), None)
    return model if name in _variants(model) else None


def _variants(model: type[BaseModel]) -> tuple[str, ...]:
    # pydantic names the branch of a union by the class in the location.
    return (model.__name__,)


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
        location = tuple(item["loc"])
        kind = item["type"]
        message = item["msg"]
        if kind == "value_error" and isinstance(item.get("ctx", {}).get("error"), ValueError):
            # A rule over several fields names the one at fault: "readinessProbe: a declared port".
            message = str(item["ctx"]["error"])
            field, colon, rest = message.partition(": ")
            if colon and _FIELD.fullmatch(field):
                location, message = (*location, field), rest
        accepted = _accepted(kind, message, str(location[-1]) if location else "", _fields_at(model, location))
        value = "" if kind in ("missing", "extra_forbidden") else _shown(item["input"], location)
        problems.append(Problem(_path((*prefix, *location)), value, accepted))
    return problems
