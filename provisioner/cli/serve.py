"""`provisioner serve`: the server that Flyte calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.cli.output import Exit, note

if TYPE_CHECKING:
    from provisioner.flyte.server import Addresses
    from provisioner.settings import Settings


@contextmanager
def _janitor(settings: Settings, interval: float | None) -> Iterator[None]:
    """A janitor beside the server, which sweeps while this replica is the elected one."""
    if interval is None:
        yield
        return
    from provisioner.janitor import settings as own
    from provisioner.janitor.janitor import Janitor

    janitor, stop = Janitor(settings, own.load()), threading.Event()
    thread = threading.Thread(target=janitor.run_forever, args=(interval, stop), name="janitor")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        janitor.close()


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; else $PROVISIONER_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="gRPC port, 0 for a free one; else $PROVISIONER_PORT.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Prometheus port, 0 for a free one; else $PROVISIONER_METRICS_PORT."),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write the addresses here, as JSON, once both ports are open.")
    ] = None,
    gc_interval: Annotated[
        float | None,
        typer.Option(min=1, help="Sweep every so many seconds in one elected replica; no janitor when not given."),
    ] = None,
) -> int:
    """Serve Flyte: the connector over gRPC, health and Prometheus metrics, until SIGTERM."""
    from provisioner import logs
    from provisioner.flyte.server import serve as run
    from provisioner.settings import load

    given = {"host": host, "port": port, "metrics_port": metrics_port}
    settings = load().model_copy(update={name: value for name, value in given.items() if value is not None})
    logs.configure(settings)

    def announce(addresses: Addresses) -> None:
        typer.echo(f"gRPC {addresses.host}:{addresses.port}, metrics {addresses.host}:{addresses.metrics_port}")
        if ready_file is not None:
            beside = ready_file.with_name(f"{ready_file.name}.new")
            beside.write_text(json.dumps(asdict(addresses)) + "\n")
            beside.replace(ready_file)

    try:
        with _janitor(settings, gc_interval):
            clean = run(settings, announce)
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    if clean:
        return Exit.DONE
    note("an operation was still running at the end; the next start continues it")
    return Exit.FAILED
