"""The options that several verbs share: which service, where, how long."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

_CHECKPOINT = re.compile(r"(?P<stack>(?P<name>[a-z0-9-]+)-[a-z2-7]{10})\.json(?:\.gz)?")


def _names(incomplete: str) -> Iterator[str]:
    """Names of services for the shell's completion: from file names alone, since a key press cannot wait."""
    from provisioner.settings import load

    url = urlsplit(load().backend)
    if url.scheme != "file":
        return
    folder = Path(url.path).expanduser() / ".pulumi" / "stacks" / "data-service"
    try:
        entries = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        match = _CHECKPOINT.fullmatch(entry)
        if match is not None:
            yield from (name for name in (match["name"], match["stack"]) if name.startswith(incomplete))


def complete_service(incomplete: str) -> list[str]:
    """What can stand where a service is named.

    Args:
        incomplete: What was typed of it.
    """
    return sorted(set(_names(incomplete)))


def _seconds(text: str) -> float:
    from provisioner.spec import parse_duration

    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the service, or of its stack.", autocompletion=complete_service),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Kubernetes namespace; else $PROVISIONER_NAMESPACE.", show_default=False),
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", help="Flyte project; else $PROVISIONER_PROJECT.", show_default=False)
]
DomainOption = Annotated[
    str | None, typer.Option("--domain", help="Flyte domain; else $PROVISIONER_DOMAIN.", show_default=False)
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", parser=_seconds, metavar="DURATION", help="Longest wait, such as 90s or 10m.", show_default=False
    ),
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Make anew what cannot be changed in place; its replicas stop.")
]
FilesOption = Annotated[
    list[Path],
    typer.Option("--filename", "-f", metavar="FILE", help="YAML file or folder with services; - is stdin. Repeatable."),
]
