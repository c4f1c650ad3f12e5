"""How a server tells where it listens: a line for people, a file for the program that started it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import typer


class Addresses(Protocol):
    """Where a server listens; `metrics_port` is None when it serves no metrics."""

    @property
    def host(self) -> str: ...  # noqa: D102
    @property
    def port(self) -> int: ...  # noqa: D102
    @property
    def metrics_port(self) -> int | None: ...  # noqa: D102


@contextmanager
def announced(ready_file: Path | None) -> Iterator[Callable[[Addresses], None]]:
    """Announce a server, and take the announcement back at the end.

    Args:
        ready_file: Gets the addresses as JSON, whole or not at all; None for no file.

    Yields:
        To be called once the ports are open.
    """

    def announce(addresses: Addresses) -> None:
        metrics = "none" if addresses.metrics_port is None else f"{addresses.host}:{addresses.metrics_port}"
        typer.echo(f"gRPC {addresses.host}:{addresses.port}, metrics {metrics}")
        if ready_file is not None:
            beside = ready_file.with_name(f"{ready_file.name}.new")
            document = {"host": addresses.host, "port": addresses.port, "metrics_port": addresses.metrics_port}
            beside.write_text(json.dumps(document) + "\n")
            beside.replace(ready_file)

    try:
        yield announce
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
