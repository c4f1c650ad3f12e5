"""How everything is printed: tables like kubectl's, stable JSON and YAML, errors in one line.

Results go to stdout, everything about the way there (progress, notes, errors)
to stderr, so that a pipe always carries results alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.text import Text

from provisioner.errors import ProvisionerError, RefusedError, SpecError, UsageError

# Columns of the narrowest terminal that output is made for.
WIDTH = 80


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_READY = 3
    REFUSED = 4
    INTERRUPTED = 130


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


FormatOption = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.", case_sensitive=False)]


def stderr() -> Console:
    """A console for progress and notes; plain when it is not a terminal."""
    return Console(stderr=True, highlight=False)


def note(message: str) -> None:
    """Print one line about what is being done, to stderr."""
    # Never broken: what is one line here is one line in a log, or for grep.
    stderr().print(Text(message), soft_wrap=True)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, beneath: Sequence[str] | None = None
) -> None:
    """Print rows in aligned columns, three spaces apart, never cut or wrapped.

    Args:
        columns: The headings, printed in capitals.
        rows: One value per column; None is printed as `<none>`.
        beneath: For each row what is printed on a line of its own below it, or "".
    """
    cells = [[heading.upper() for heading in columns]]
    cells += [["<none>" if value is None else str(value) for value in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for number, row in enumerate(cells):
        line = "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(line.rstrip())
        if beneath is not None and number and beneath[number - 1]:
            typer.echo(f"    {beneath[number - 1]}")


def print_result(
    value: Any,
    output: Format,
    *,
    columns: Mapping[str, str] | None = None,
    empty: str = "nothing found",
    more: bool = False,
) -> None:
    """Print one result as the user asked for it.

    Args:
        value: Plain data: a list of mappings, or one mapping.
        output: Table, JSON or YAML.
        columns: For a table: heading -> key of the mapping. Defaults to the
            keys of the first row.
        empty: What is said on stderr when a table has no rows.
        more: Whether others follow it: each is a line of JSON, or a document of YAML.
    """
    if output is Format.JSON:
        typer.echo(json.dumps(value, indent=None if more else 2, default=str))
        return
    if output is Format.YAML:
        plain = json.loads(json.dumps(value, default=str))
        typer.echo(yaml.safe_dump(plain, sort_keys=False, explicit_start=more), nl=False)
        return
    rows = [value] if isinstance(value, Mapping) else list(value)
    if not rows:
        note(empty)
        return
    shown = columns or {key: key for key in rows[0]}
    print_table(list(shown), [[row.get(key) for key in shown.values()] for row in rows])


def exit_code(error: ProvisionerError) -> Exit:
    """The exit code that stands for an error."""
    if isinstance(error, RefusedError):
        return Exit.REFUSED
    if isinstance(error, UsageError | SpecError):
        return Exit.USAGE
    return Exit.FAILED


def print_problem(message: str, hint: str = "") -> None:
    """Print what went wrong with one of several things on stderr, and what to do about it."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def print_error(error: ProvisionerError) -> None:
    """Print an error as one line on stderr, and its hint as a second."""
    if isinstance(error, SpecError):
        print(f"error: {error.source} is not valid", file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem}", file=sys.stderr)
    else:
        print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
