"""How far one watch may be believed: a value that its contacts change, and pure rules over it.

A watch that was taken up again says nothing of having caught up: the API
server sends what was missed first, then only what happens, and in quiet times
nothing for a while. So an open watch counts as complete once it has been open
for a moment, and until then what is known is as old as the last contact
before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from provisioner.errors import PermanentError, ProvisionerError


@dataclass(frozen=True)
class Timing:
    """How long the watch waits for what; all in seconds.

    Attributes:
        watch: After how long the server ends a watch, so that it begins anew.
        slack: How much later than that a silent connection counts as dead.
        settle: For how long after its begin a watch may still owe what was
            missed; shorter than `gap`, so that a regular new begin changes nothing.
        gap: How long the contact may be lost before the cache is not fresh;
            after a longer loss everything is listed again.
        stale: Age from which the cache is not fresh, even without an error.
        first_delay: Delay after the first failure; it doubles with each one.
        longest_delay: Longest delay between two attempts.
        refused: Delay after a refusal, which only a person can undo.
    """

    watch: float = 30.0
    slack: float = 10.0
    settle: float = 1.0
    gap: float = 5.0
    stale: float = 45.0
    first_delay: float = 0.25
    longest_delay: float = 15.0
    refused: float = 60.0


@dataclass(frozen=True, slots=True)
class Health:
    """How a watch is doing. All times are of the monotonic clock, in seconds.

    Attributes:
        contact: Until when what is known was last seen to be complete.
        synced: Whether everything was listed once.
        opened: Since when the watch is open; None while it is not.
        problem: What is wrong, or None.

    Example:
        >>> timing = Timing(settle=1.0, gap=5.0)
        >>> health = Health(contact=0.0).listed(10.0).begun(20.0)
        >>> health.complete(20.5, timing), health.complete(21.0, timing)
        (10.0, 20.0)
        >>> health.stale("pods", 20.5, timing)
        'no word about pods for 10 s'
        >>> health.stale("pods", 21.0, timing)
        ''
    """

    contact: float
    synced: bool = False
    opened: float | None = None
    problem: ProvisionerError | None = None

    def listed(self, now: float) -> Health:
        """Everything there is was listed."""
        return Health(contact=now, synced=True)

    def begun(self, now: float) -> Health:
        """The API server answered the watch; what was missed is still to come."""
        return replace(self, opened=now, problem=None)

    def heard(self, now: float, timing: Timing) -> Health:
        """The watch brought something."""
        return replace(self, contact=now) if self._settled(now, timing) else self

    def ended(self, now: float, timing: Timing) -> Health:
        """The watch was ended by the API server, at its time."""
        return replace(self.heard(now, timing), opened=None)

    def lost(self, now: float, problem: ProvisionerError, timing: Timing) -> Health:
        """The watch failed, or could not begin."""
        return replace(self, contact=self.complete(now, timing), opened=None, problem=problem)

    def complete(self, now: float, timing: Timing) -> float:
        """Until when what is known is complete, as far as can be told."""
        if self.opened is not None and self._settled(now, timing):
            return max(self.contact, self.opened)
        return self.contact

    def stale(self, what: str, now: float, timing: Timing) -> str:
        """Why what is known cannot be relied on, or "".

        Args:
            what: The plural of its kind.
            now: The time.
            timing: How long what may take.
        """
        said = f": {self.problem.message}" if self.problem else ""
        if not self.synced:
            return f"{what} were not listed yet{said}"
        age = now - self.complete(now, timing)
        if age > (timing.stale if self._settled(now, timing) else timing.gap):
            return f"no word about {what} for {age:.0f} s{said}"
        return self.problem.message if isinstance(self.problem, PermanentError) else ""

    def _settled(self, now: float, timing: Timing) -> bool:
        return self.opened is not None and now - self.opened >= timing.settle
