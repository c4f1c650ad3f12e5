"""What the demonstration tells while it runs, and at its end: values, without a word on how they are shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from provisioner.errors import PermanentError


@dataclass(frozen=True)
class StepReport:
    """One step that succeeded.

    Attributes:
        name: What was done.
        seconds: How long it took.
        result: What came of it.
    """

    name: str
    seconds: float
    result: str


@dataclass(frozen=True)
class DemoReport:
    """The whole demonstration.

    Attributes:
        steps: Each step, in order.
        kept: Commands to look around with; empty when nothing was kept.
    """

    steps: tuple[StepReport, ...]
    kept: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it all took."""
        return sum(step.seconds for step in self.steps)


class Show(Protocol):
    """Shows the demonstration to somebody."""

    def begin(self, step: str) -> None:
        """A step begins."""

    def update(self, line: str) -> None:
        """How far the step is; the next one takes its place."""

    def say(self, line: str) -> None:
        """Something worth keeping in sight."""

    def done(self, step: StepReport) -> None:
        """A step has succeeded."""


class DemoError(PermanentError):
    """The demonstration found something that is not as it must be."""

    default_reason = "DemoFailed"


@dataclass
class Step:
    """A step under way.

    Attributes:
        show: For its progress.
        result: What came of it, for the summary.
    """

    show: Show
    result: str = ""


@dataclass
class Recorder:
    """Runs steps, and remembers how long each took.

    Attributes:
        show: Told of all.
        steps: Those that succeeded.
    """

    show: Show
    steps: list[StepReport] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Run the body as one step.

        Args:
            name: What is done.
        """
        self.show.begin(name)
        started = time.monotonic()
        step = Step(self.show)
        yield step
        report = StepReport(name, time.monotonic() - started, step.result)
        self.steps.append(report)
        self.show.done(report)
