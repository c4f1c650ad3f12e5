"""Servers that may be killed: which processes they consist of, each change that these make to files told beforehand."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from syscalls import FileChange, Traced

from provisioner.demo.server import ServerProcess
from provisioner.settings import Settings

ENGINE = {"pulumi": "cli", "pulumi-resource": "provider"}
"""The names of the engine's processes -> what the tests call them."""


def command_name(pid: int) -> str:
    """The name of a process, at most 15 letters; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def ended(pid: int) -> bool:
    """Whether a process runs no more; its remains may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Replica(ServerProcess):
    """`provisioner serve`, each change that it and its engine make to files told beforehand.

    Args:
        settings: Backend and cluster.
        folder: For its log.
        decide: Told each change.
        variables: More environment.
        host: Name of the host that it sees; "" for the real one.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        decide: Callable[[FileChange], int],
        variables: Mapping[str, str],
        host: str = "",
    ) -> None:
        super().__init__(settings, folder)
        self.host = host
        self._decide = decide
        self._variables = variables

    def _launch(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return Traced(command, self._decide, {**environment, **self._variables}, log, self.host).process

    def engine_processes(self) -> dict[str, list[int]]:
        """`cli` and `provider` -> the pids of those that it has started and that still run."""
        found: dict[str, list[int]] = {"cli": [], "provider": []}
        for pid in _descendants(self.pid):
            kind = ENGINE.get(command_name(pid))
            if kind is not None and not ended(pid):
                found[kind].append(pid)
        return found

    def victims(self) -> dict[str, list[int]]:
        """What can be killed now -> its pids; the machine only where it is more than the server."""
        engine = {kind: pids for kind, pids in self.engine_processes().items() if pids}
        found = {"server": [self.pid], **engine}
        return {**found, "machine": list(itertools.chain(*found.values()))} if engine else found


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from _descendants(child)


def engine_processes(mark: str) -> list[int]:
    """The pids of all engine processes with some text in their environment, whoever their parent is by now.

    Args:
        mark: The text.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and command_name(pid := int(entry.name)) in ENGINE and not ended(pid):
            with suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(pid)
    return found
