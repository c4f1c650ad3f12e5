"""`provisioner schema`: the format of a service's file, for editors and for people."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="The reference for people, docs/spec.md.")] = False,
) -> None:
    """Print the JSON Schema of a service's file."""
    from provisioner.spec import reference

    typer.echo(reference.markdown() if markdown else json.dumps(reference.json_schema(), indent=2), nl=not markdown)
