"""`provisioner logs`: what the replicas print."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.cli.options import DomainOption, NameArgument, NamespaceOption, ProjectOption
from provisioner.cli.output import Exit, print_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provisioner.cluster import ClusterClient

# A line, with the pod that it is from; None when that pod has no more.
_Line = tuple[str, str | None]


def logs(
    name: NameArgument,
    replica: Annotated[
        int | None, typer.Option("--replica", "-r", min=0, help="Only this replica, by its number.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines.")] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the run before the present one.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="So many of the last lines; else all.", show_default=False)
    ] = None,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
) -> int:
    """Print what a service's replicas log.

    With several replicas each line begins with the name of its pod.
    """
    from provisioner.cli.session import Session
    from provisioner.errors import PermanentError

    session = Session(namespace, project, domain)
    found = session.find(name)
    pods = sorted(session.live.pods(found.identity), key=lambda pod: pod.ordinal)
    chosen = [pod.name for pod in pods if replica in (None, pod.ordinal)]
    if not chosen:
        have = ", ".join(str(pod.ordinal) for pod in pods) or "none"
        raise PermanentError(
            f"service {found.identity.service} has no pod"
            + (f" of replica {replica}; there are {have}" if replica is not None else ""),
            reason="NoSuchReplica",
            hint=f"see `provisioner status {name}`",
        )
    options = {"previous": previous, "tail": tail, "follow": follow}
    reader = _Reader(session.cluster, found.identity.namespace, options)
    lines = reader.together(chosen) if follow else reader.one_by_one(chosen)
    for pod, line in lines:
        typer.echo(f"{pod} | {line}" if len(chosen) > 1 else line)
    for message, hint in reader.failed:
        print_problem(message, hint)
    return Exit.FAILED if len(reader.failed) == len(chosen) else Exit.DONE


class _Reader:
    """Reads the logs of pods.

    Args:
        cluster: The API server.
        namespace: The pods' namespace.
        options: Of `ClusterClient.logs`.
    """

    def __init__(self, cluster: ClusterClient, namespace: str, options: dict[str, bool | int | None]) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._options = options
        self.failed: list[tuple[str, str]] = []

    def one_by_one(self, pods: Sequence[str]) -> Iterator[tuple[str, str]]:
        """All lines of the first pod, then of the next."""
        for pod in pods:
            for line in self._lines(pod):
                yield pod, line

    def together(self, pods: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The lines of all pods as they come, until the last has ended."""
        queue: SimpleQueue[_Line] = SimpleQueue()
        for pod in pods:
            # They end with the process: a silent container must not keep Ctrl-C waiting.
            threading.Thread(target=self._feed, args=(pod, queue), daemon=True).start()
        left = len(pods)
        while left:
            pod, line = queue.get()
            if line is None:
                left -= 1
            else:
                yield pod, line

    def _feed(self, pod: str, queue: SimpleQueue[_Line]) -> None:
        try:
            for line in self._lines(pod):
                queue.put((pod, line))
        finally:
            queue.put((pod, None))

    def _lines(self, pod: str) -> Iterator[str]:
        from provisioner.errors import ProvisionerError

        try:
            with self._cluster.logs(self._namespace, pod, **self._options) as lines:  # type: ignore[arg-type]
                yield from lines
        except ProvisionerError as error:
            # One replica that has not started must not hide what the others say.
            self.failed.append((f"{pod}: {error.message}", error.hint))
