"""`provisioner settings`: every setting, its value and where that came from."""

from __future__ import annotations

import os
import re
from typing import Any

import typer

from provisioner.cli.output import Format, FormatOption, print_result
from provisioner.settings import ENV_PREFIX, Settings, load


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, type):
        return annotation.__name__
    return re.sub(r"\b[a-z_]+\.", "", str(annotation))


def settings(output: FormatOption = Format.TABLE) -> None:
    """Print every setting, its value and where that came from.

    The value of a secret is never shown.
    """
    values = load()
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"{ENV_PREFIX}{name.upper()}"
        value = getattr(values, name)
        bounds = [str(item) for item in field.metadata]
        rows.append(
            {
                "variable": variable,
                "value": None if value is None else str(value),
                "source": "environment" if variable in os.environ else "default",
                "type": _type_name(field.annotation),
                "bounds": ", ".join(bounds) or None,
                "description": field.description,
            }
        )
    if output is not Format.TABLE:
        print_result(rows, output)
        return
    for row in rows:
        typer.echo(f"{row['variable']}={'' if row['value'] is None else row['value']}   ({row['source']})")
        typer.echo(f"    {row['description']}")
