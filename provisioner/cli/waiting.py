"""Wait for services and show how they come along: a live line each on a terminal, else a line per change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.text import Text

from provisioner.cli.output import stderr
from provisioner.control.status import Phase, Status

_POLL_SECONDS = 0.2

_STYLES = {Phase.READY: "green", Phase.GONE: "green", Phase.FAILED: "red"}


def progress_line(name: str, status: Status) -> str:
    """One line about a service on its way.

    Args:
        name: How the user calls it.
        status: How it is.
    """
    counts = f" ({status.ready}/{status.wanted} ready)" if status.phase is Phase.STARTING else ""
    message = status.message.splitlines()[0] if status.message else ""
    return f"{name}: {status.phase.value}{counts}" + (f", {message}" if message else "")


class Progress:
    """Shows the status of several services while they are waited for."""

    def __init__(self) -> None:
        self._console = stderr()
        self._lines: dict[str, Text] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, refresh_per_second=5)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, name: str, status: Status) -> None:
        """Show the status of one service.

        Args:
            name: How the user calls it.
            status: How it is now.
        """
        line = Text(progress_line(name, status), style=_STYLES.get(status.phase, ""), no_wrap=True, overflow="ellipsis")
        if self._lines.get(name) == line:
            return
        self._lines[name] = line
        if self._live is not None:
            self._live.update(Text("\n", no_wrap=True, overflow="ellipsis").join(self._lines.values()))
        else:
            self._console.print(line, soft_wrap=True)


def wait(
    looks: Mapping[str, Callable[[], Status]],
    done: Callable[[Status], bool],
    deadlines: Mapping[str, float],
    names: Mapping[str, str],
) -> dict[str, Status]:
    """Look at services until each is done or its time is over, and show how they come along.

    Args:
        looks: Stack -> how to look at it; answers from memory.
        done: Whether a status ends the wait for its service.
        deadlines: Stack -> until when it is waited for, on the monotonic clock.
        names: Stack -> how the user calls it.

    Returns:
        The last status of each.
    """
    statuses: dict[str, Status] = {}
    waiting = dict(looks)
    with Progress() as progress:
        while True:
            for stack, look in list(waiting.items()):
                statuses[stack] = look()
                progress.show(names[stack], statuses[stack])
                if done(statuses[stack]) or time.monotonic() >= deadlines[stack]:
                    del waiting[stack]
            if not waiting:
                return statuses
            time.sleep(_POLL_SECONDS)
