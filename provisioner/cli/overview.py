"""`provisioner status` without a name: how all services are, from one shared watch however many there are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from provisioner.cli.output import Exit, Format, note, print_result, print_table
from provisioner.cli.text import age

if TYPE_CHECKING:
    from provisioner.cluster import ClusterCache
    from provisioner.cluster.objects import StatefulSet
    from provisioner.settings import Settings

_SYNC_SECONDS = 20.0
_WATCH_SECONDS = 1.0
# What does not fit on a screen is a matter for `list`.
_ROWS = 20


def show_all(settings: Settings, namespace: str | None, output: Format, *, watch: bool) -> int:
    """Show how all services are; with `watch` a line, or a document, for each change.

    Args:
        settings: Which cluster.
        namespace: Of whose services alone; None for those of all.
        output: How.
        watch: Go on until Ctrl-C.

    Raises:
        ProvisionerError: No cluster can be reached, or its objects could not be listed.
    """
    told: list[str] = []
    with _cache(settings, namespace) as cache:
        known = summary(cache.statefulsets())
        _print(known, output, lines=watch)
        while watch:
            time.sleep(_WATCH_SECONDS)
            problems = cache.problems()
            for problem in problems:
                if problem not in told:
                    note(problem)
            told, now = problems, summary(cache.statefulsets())
            if now != known:
                known = now
                _print(known, output, lines=True)
    return Exit.NOT_READY if known["unready"] else Exit.DONE


@contextmanager
def _cache(settings: Settings, namespace: str | None) -> Iterator[ClusterCache]:
    from provisioner.cluster import ClusterCache, ClusterClient
    from provisioner.cluster.live import LiveObjects
    from provisioner.errors import TransientError

    client = ClusterClient(settings)
    # Who cannot reach a cluster at all is told so at once, and not when a watch has been waited for.
    LiveObjects(client.transport).server()
    cache = ClusterCache(client, namespaces=[namespace] if namespace else settings.namespaces)
    cache.start()
    try:
        if not cache.wait_synced(_SYNC_SECONDS):
            raise TransientError(
                "the cluster's objects could not be listed in time: " + ("; ".join(cache.problems()) or "no answer"),
                reason="NotSynced",
                hint="see `provisioner doctor` for what is missing",
            )
        yield cache
    finally:
        cache.stop()


def summary(statefulsets: Iterable[StatefulSet]) -> dict[str, Any]:
    """How all services are, as plain data.

    Args:
        statefulsets: Those of all services.

    Returns:
        How many services and replicas there are, how many of them in which
        phase, and which are not ready, by namespace and name.
    """
    from provisioner.control.census import census, shown
    from provisioner.control.status import Phase

    found = sorted(statefulsets, key=lambda item: (item.namespace, item.name))
    return {
        "services": len(found),
        "wanted": sum(item.replicas for item in found),
        "ready": sum(min(item.ready_replicas, item.replicas) for item in found),
        "phases": {phase.value: number for phase, number in census(found, ()).items() if number},
        "unready": [
            {
                "name": item.name,
                "namespace": item.namespace,
                "stack": item.stack,
                "ready": item.ready_replicas,
                "wanted": item.replicas,
                "status": shown(item).value,
                "created": item.created.isoformat() if item.created else None,
            }
            for item in found
            if shown(item) is not Phase.READY
        ],
    }


def line(known: dict[str, Any]) -> str:
    """A summary in one line.

    Args:
        known: What `summary` gave.

    Example:
        >>> line({"services": 2, "wanted": 6, "ready": 4, "phases": {"Ready": 1, "Starting": 1}, "unready": []})
        '2 services: 1 Ready, 1 Starting; 4/6 replicas ready'
    """
    if not known["services"]:
        return "no services"
    phases = ", ".join(f"{number} {phase}" for phase, number in known["phases"].items())
    many = "service" if known["services"] == 1 else "services"
    return f"{known['services']} {many}: {phases}; {known['ready']}/{known['wanted']} replicas ready"


def _print(known: dict[str, Any], output: Format, *, lines: bool) -> None:
    if output is not Format.TABLE:
        print_result(known, output, more=lines)
        return
    clock = f"{datetime.now().astimezone():%H:%M:%S}  " if lines else ""
    typer.echo(clock + line(known))
    if lines or not known["unready"]:
        return
    now = datetime.now(UTC)
    rows = [
        [
            row["name"],
            row["namespace"],
            f"{row['ready']}/{row['wanted']}",
            row["status"],
            age(datetime.fromisoformat(row["created"]) if row["created"] else None, now),
        ]
        for row in known["unready"][:_ROWS]
    ]
    typer.echo("")
    print_table(("name", "namespace", "ready", "status", "age"), rows)
    if len(known["unready"]) > _ROWS:
        note(f"and {len(known['unready']) - _ROWS} more: see `provisioner list`")
