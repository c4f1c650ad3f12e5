"""A `pulumi` in front of the real one: it counts the starts, and can hold up what changes something."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from provisioner.toolchain import locate

_PROGRAM = """#!/bin/sh
echo "$*" >> {log}
case " $* " in *" up "*) if [ -p {gate} ]; then echo waits >> {held}; read _ < {gate}; fi ;; esac
exec {real} "$@"
"""


class Shim:
    """A `pulumi` that writes down each start and then becomes the real one.

    Args:
        folder: Where it may keep its files.
    """

    def __init__(self, folder: Path) -> None:
        self._log, self._held, self._gate = folder / "starts", folder / "held", folder / "gate"
        self._log.touch()
        self._held.touch()
        real = locate("pulumi")
        program = folder / "bin" / "pulumi"
        program.parent.mkdir()
        program.write_text(_PROGRAM.format(log=self._log, held=self._held, gate=self._gate, real=real.path))
        program.chmod(0o755)
        self.binary = replace(real, path=program)

    def take(self) -> list[str]:
        """The verbs of the processes since the last call; the look at the version is no operation."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        self._log.write_text("")
        verbs = [next(word for word in line if not word.startswith("-") and word != "never") for line in lines]
        return [verb for verb in verbs if verb != "version"]

    def held(self) -> int:
        """How many processes were held up so far."""
        return len(self._held.read_text().splitlines())

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Let no `up` begin its work before the block has ended."""
        os.mkfifo(self._gate)
        # Who waits is let go when the other end is opened and closed; open for reading too, it needs nobody there.
        try:
            yield
        finally:
            end = os.open(self._gate, os.O_RDWR)
            self._gate.unlink()
            os.write(end, b"\n" * 64)
            os.close(end)
