"""Remove the services of a process that has ended, however it ended.

A child process holds one end of a pipe and is told each service its parent
owns. When the pipe closes, because the parent finished, failed or was killed,
the child removes what is left. No code at exit can do this from inside: a
killed process runs none, and from Python 3.12 on a finishing one can start no
thread.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import IO, TextIO

from provisioner import logs, settings
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase
from provisioner.errors import ProvisionerError
from provisioner.settings import Settings

_POLL_SECONDS = 0.2


class Reaper:
    """The parent's side of the pipe.

    Args:
        process: The child.
        before_end: Called first when this process ends in good order.
    """

    def __init__(self, process: subprocess.Popen[str], before_end: Callable[[], None]) -> None:
        self._process = process
        self._before_end = before_end
        self._owned: set[str] = set()

    @classmethod
    def start(cls, before_end: Callable[[], None]) -> Reaper:
        """Start the child; it is out of reach of this terminal's Ctrl-C.

        Args:
            before_end: Called when this process ends in good order, before
                the child begins its work: stop what works on the services.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        reaper = cls(process, before_end)
        atexit.register(reaper.finish)
        return reaper

    def own(self, request: ServiceRequest) -> None:
        """Name a service that is to end with this process."""
        self._owned.add(request.stack)
        self._tell({"own": request.document()})

    def forget(self, stack: str) -> None:
        """Say that a service is gone."""
        self._owned.discard(stack)
        self._tell({"forget": stack})

    def finish(self) -> None:
        """Let the child remove what is left, and wait for it."""
        if self._process.returncode is not None:
            return
        self._before_end()
        if self._owned:
            print(f"removing {len(self._owned)} data service(s) of this run", file=sys.stderr)
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
        try:
            self._process.wait(settings.load().operation_timeout)
        except subprocess.TimeoutExpired:
            print("their removal goes on in the background", file=sys.stderr)

    @property
    def _pipe(self) -> IO[str]:
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        return self._process.stdin

    def _tell(self, document: object) -> None:
        self._pipe.write(json.dumps(document) + "\n")
        self._pipe.flush()


def services_left(pipe: Iterable[str]) -> list[ServiceRequest]:
    """Read what the parent says until it ends.

    Args:
        pipe: Its lines.

    Returns:
        The services that it owned to the end.
    """
    owned: dict[str, ServiceRequest] = {}
    for line in pipe:
        document = json.loads(line)
        if "own" in document:
            request = ServiceRequest.from_document(document["own"])
            owned[request.stack] = request
        else:
            owned.pop(document["forget"], None)
    return list(owned.values())


def remove_all(services: list[ServiceRequest], values: Settings, say: Callable[[str], None]) -> bool:
    """Remove services and wait until nothing of them is left.

    Args:
        services: Which.
        values: Backend and cluster.
        say: Told about each that is gone, and about what is not.

    Returns:
        Whether all are gone.
    """
    from provisioner.control.controller import Controller  # pulumi and kubernetes: only when there is work

    controller = Controller.from_settings(values)
    controller.start()
    left = {request.stack: request for request in services}
    told: dict[str, str] = {}
    deadline = time.monotonic() + 2 * values.operation_timeout
    while left and time.monotonic() < deadline:
        for stack, request in list(left.items()):
            status = controller.remove(request)
            if status.phase is Phase.GONE:
                del left[stack]
                say(f"data service {stack}: gone")
            elif status.reason and told.get(stack) != status.reason:
                told[stack] = status.reason
                say(f"data service {stack}: {status.message}")
        time.sleep(_POLL_SECONDS)
    for stack in left:
        say(f"data service {stack}: still there; the backend is {values.backend}")
    controller.stop(values.cancel_grace)
    return not left


def _say(message: str, stream: TextIO = sys.stderr) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone with the parent
        print(message, file=stream, flush=True)


def main() -> int:
    """The child: wait for the parent's end, then remove what it left."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    services = services_left(sys.stdin)
    if not services:
        return 0
    try:
        values = settings.load()
        logs.configure_as_guest(values)
        return 0 if remove_all(services, values, _say) else 1
    except ProvisionerError as error:
        _say(f"error: {error.message}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
