"""What an installation tells while it runs; the command line shows it, a program may ignore it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One binary, or one set of packages, being provided.

    Attributes:
        name: What.
        version: Its version, "" when any will do.
        index: The number of this step's first binary, from 1.
        count: How many binaries are to be provided in all.
        action: What is done, for example `building`.
    """

    name: str
    version: str
    index: int
    count: int
    action: str


class Progress:
    """Takes note of nothing; the base of those that do."""

    def begin(self, step: Step) -> None:
        """A step begins; the one before has ended."""

    def tick(self, line: str) -> None:
        """The step goes on; `line` is the last one of its log."""

    def note(self, line: str) -> None:
        """Something that the user should know."""

    def done(self, step: Step, size: int) -> None:
        """A step succeeded; `size` is what it brought, in bytes."""
