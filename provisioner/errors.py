"""One tree of errors: its two branches decide what control does next.

A `PermanentError` ends an operation, a `TransientError` is retried with
backoff. Every error says what happened, why (a stable reason code), and what
to do about it. None inherits from a client library's error, so callers above
never import one.
"""

from __future__ import annotations

from dataclasses import dataclass


class ProvisionerError(Exception):
    """Base of every error that this package raises on purpose.

    Args:
        message: One sentence that names the place and the value.
        reason: A stable CamelCase code, for metrics and machines. Defaults to
            the class's own.
        hint: The next step for the person who reads it, or "".
    """

    default_reason = "Error"

    def __init__(self, message: str, *, reason: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class PermanentError(ProvisionerError):
    """Repeating the same request cannot succeed."""

    default_reason = "Failed"


class TransientError(ProvisionerError):
    """Repeating the same request later may succeed."""

    default_reason = "Unavailable"


class UsageError(PermanentError):
    """The command or its arguments are wrong (exit code 2)."""

    default_reason = "Usage"


class RefusedError(PermanentError):
    """The request is well formed but must not be carried out (exit code 4).

    For example: an object of that name belongs to somebody else.
    """

    default_reason = "Refused"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a document.

    Attributes:
        path: Where, for example `ports[0].name`.
        value: What stands there, as it should be shown; never a secret.
        accepted: What would be accepted instead.
    """

    path: str
    value: str
    accepted: str

    def __str__(self) -> str:
        shown = f" (got {self.value})" if self.value else ""
        return f"{self.path}: {self.accepted}{shown}"


class SpecError(PermanentError):
    """A service's specification is not valid; holds every problem found.

    Args:
        problems: All of them, in the order of the document.
        source: Where the document came from, for example `service.yaml`.
    """

    default_reason = "InvalidSpec"

    def __init__(self, problems: list[Problem] | tuple[Problem, ...], *, source: str = "spec") -> None:
        self.problems = tuple(problems)
        self.source = source
        lines = "; ".join(str(problem) for problem in self.problems)
        super().__init__(f"{source} is not valid: {lines}", hint="correct the fields named and try again")
