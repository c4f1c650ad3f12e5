"""Runs one engine operation and dies in the middle of it, with all of its processes, as a pod that is killed does.

Started by the tests as a process of its own: `interrupted.py MOMENT IDENTITY SPEC ORIGIN`, the last three as JSON,
settings from the environment. Moments: `init` (the stack exists, nothing in it), `create` (one object of it was
made), `destroy` (one object of it was deleted).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pulumi.automation import EngineEvent

from provisioner.engine import Engine
from provisioner.engine.process import session_members
from provisioner.identity import Identity, Origin
from provisioner.resources.component import program
from provisioner.sealing import Sealer
from provisioner.settings import Settings
from provisioner.spec import parse_spec


def children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def die() -> NoReturn:
    for child in children():
        # Each leads a session of its own, with the provider in it.
        for pid in (child, *session_members(child)):
            # One may go by itself when the one before it is gone.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def main() -> None:
    moment, identity, spec, origin = sys.argv[1:]
    who = Identity(**json.loads(identity))

    def on_process(command: Sequence[str]) -> None:
        if moment == "init" and "up" in command:
            die()

    def on_event(event: EngineEvent) -> None:
        done = event.res_outputs_event
        if done is not None and done.metadata.type.startswith("kubernetes:"):
            die()

    settings = Settings()
    stack = Engine(settings, on_process=on_process).stack(who.stack)
    if moment == "destroy":
        stack.destroy(on_event=on_event)
        return
    wanted = program(who, parse_spec(json.loads(spec)), Sealer.of(settings), Origin(**json.loads(origin)))
    stack.up(wanted, on_event=on_event)


if __name__ == "__main__":
    main()
