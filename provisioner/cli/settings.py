"""`provisioner settings`: every setting, its value and where that came from."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from provisioner.cli.output import WIDTH, Format, FormatOption, print_result
from provisioner.settings import Written, load, read_file


def _written(field: FieldInfo) -> Written:
    for item in field.metadata:
        if isinstance(item, Written):
            return item
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        return Written(" | ".join(map(str, get_args(annotation))))
    if isinstance(annotation, type):
        return Written(annotation.__name__)
    return Written(re.sub(r"\b[a-z_]+\.", "", str(annotation)))


def _bound(item: Any, write: Callable[[Any], str]) -> str | None:
    match item:
        case Gt(gt=least):
            return f"> {write(least)}"
        case Ge(ge=least):
            return f">= {write(least)}"
        case Le(le=most):
            return f"<= {write(most)}"
        case MinLen(min_length=least):
            return f"length >= {least}"
        case MaxLen(max_length=most):
            return f"length <= {most}"
    pattern = getattr(item, "pattern", None)
    return f"matches {pattern}" if pattern else None


def _shown(value: Any) -> str | None:
    return ",".join(map(str, value)) if isinstance(value, tuple) else None if value is None else str(value)


def _rows(values: BaseSettings) -> Iterator[dict[str, str | None]]:
    given, of_file = {name.upper() for name in os.environ}, read_file()
    # As they are written, which for a duration is not the number that is kept.
    written = values.model_dump()
    for name, field in type(values).model_fields.items():
        variable = f"{values.model_config['env_prefix']}{name.upper()}"
        form = _written(field)
        bounds = filter(None, (_bound(item, form.bound) for item in field.metadata))
        yield {
            "variable": variable,
            "value": _shown(written[name]),
            "source": "file" if variable in of_file else "environment" if variable in given else "default",
            "type": form.how,
            "bounds": ", ".join(bounds) or None,
            "description": field.description,
        }


def settings(output: FormatOption = Format.TABLE) -> None:
    """Print every setting, its value and where that came from.

    The value of a secret is never shown. PROVISIONER_GC_* are the janitor's.
    PROVISIONER_SETTINGS_FILE names a file with a line NAME=VALUE for each;
    what stands in the environment wins over it.
    """
    from provisioner.janitor import settings as janitor

    rows = [*_rows(load()), *_rows(janitor.load())]
    if output is not Format.TABLE:
        print_result(rows, output)
        return
    for row in rows:
        typer.echo(f"{row['variable']}={row['value'] or ''}   ({row['source']})")
        form = f"{row['type']}, {row['bounds']}" if row["bounds"] else row["type"]
        text = f"{row['description']} [{form}]"
        typer.echo(textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    "))
