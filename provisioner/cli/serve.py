"""`provisioner serve`: the server that Flyte calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.cli.listening import announced
from provisioner.cli.output import Exit, note

if TYPE_CHECKING:
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
    plaintext: Annotated[
        bool | None,
        typer.Option("--plaintext", help="Serve without TLS where others can reach it; else $PROVISIONER_PLAINTEXT."),
    ] = None,
    gc_interval: Annotated[
        float | None,
        typer.Option(min=1, help="Sweep every so many seconds in one elected replica; no janitor when not given."),
    ] = None,
) -> int:
    """Serve Flyte over gRPC, with health and metrics, until SIGTERM."""
    from provisioner import logs, tracing
    from provisioner.flyte.server import serve as run
    from provisioner.settings import load

    given = {"host": host, "port": port, "metrics_port": metrics_port, "plaintext": plaintext or None}
    settings = load().model_copy(update={name: value for name, value in given.items() if value is not None})
    logs.configure(settings)
    tracing.start()

    try:
        with announced(ready_file) as announce, _janitor(settings, gc_interval):
            clean = run(settings, announce)
    finally:
        tracing.stop()
    if clean:
        return Exit.DONE
    note("an operation was still running at the end; the next start continues it")
    return Exit.FAILED
