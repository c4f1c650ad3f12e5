"""Why the engine failed: its own texts, the provider's and the API server's, turned into errors with a reason.

The engine gives exit code 255 for everything, so its texts are all there is.
They were collected by causing each failure on the real thing; the tests hold
them word for word. What no rule knows stays an `EngineFailed` with the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.engine.changes import Diagnostic, is_echo
from provisioner.engine.rules import RULES, Rule
from provisioner.errors import PermanentError, TransientError

_LONGEST = 1200

# What the provider puts in front of the API server's words.
_WRAPPERS = re.compile(
    r"^(?:error: |preview: |updating urn:\S+: |deleting urn:\S+: |refreshing urn:\S+: |(?:\d+ errors? occurred:\s*\* )"
    r"|resource \S+ was not successfully created by the Kubernetes API server:\s*"
    r"|update of resource \S+ failed because the Kubernetes API server reported that it failed to fully initialize"
    r" or become live:\s*"
    r"|kubernetes:\S+ resource \S+ was not successfully (?:created|updated) by the Kubernetes API server:\s*)+",
)
_RETRY = re.compile(r"Retry #(?P<attempt>\d+); creation failed: (?P<words>.+)", re.DOTALL)
# The attempt at which a creation is given up, 3 seconds after the first.
_PATIENCE = 2
_PRINTED_ERROR = re.compile(r"^(?:error|fatal error|panic):\s+\S.*", re.MULTILINE)


@dataclass(frozen=True)
class Failure:
    """All that is known of a process that failed.

    Attributes:
        stack: Name of the stack.
        verb: What it was to do.
        code: Its exit code; negative when a signal ended it.
        diagnostics: What the engine's events told.
        output: The last of what it printed.
    """

    stack: str
    verb: str
    code: int
    diagnostics: Sequence[Diagnostic] = ()
    output: str = ""


@dataclass(frozen=True)
class _Cause:
    """One error text and the rule that knows it.

    Attributes:
        place: The object that it is about, or "".
        text: What was said.
        rule: None when none knows it.
        match: Of the rule in the text.
    """

    place: str
    text: str
    rule: Rule | None
    match: re.Match[str] | None

    @property
    def transient(self) -> bool:
        return self.rule is not None and self.rule.transient

    def sentence(self) -> str:
        """The text in our words where the rule has any, behind the object's name."""
        said = self.text
        if self.rule is not None and self.rule.say and self.match is not None:
            groups = {name: value or "" for name, value in self.match.groupdict().items()}
            said = self.rule.say.format(**groups)
        said = " ".join(said.split())
        said = said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"
        return f"{self.place}: {said}" if self.place else said


def classify(failure: Failure) -> PermanentError | TransientError:
    """The error that a failure amounts to. Of several causes a permanent one counts, else the first.

    Args:
        failure: What is known of it.
    """
    causes = list(_causes(failure))
    if not causes and failure.code < 0:
        return TransientError(
            f"{failure.verb} of stack {failure.stack} was ended by signal {-failure.code}",
            reason="EngineKilled",
            hint="look whether the machine ran out of memory",
        )
    if not causes:
        last = " ".join(failure.output.split())[-_LONGEST:] or "nothing was said"
        return PermanentError(
            f"{failure.verb} of stack {failure.stack} failed with exit code {failure.code}: {last}",
            reason="EngineFailed",
        )
    chosen = next((cause for cause in causes if not cause.transient), causes[0])
    reason = chosen.rule.reason if chosen.rule is not None else "EngineFailed"
    hint = chosen.rule.advice(chosen.match) if chosen.rule is not None and chosen.match is not None else ""
    kind = TransientError if chosen.transient else PermanentError
    return kind(f"{failure.verb} of stack {failure.stack} failed: {chosen.sentence()}", reason=reason, hint=hint)


def hopeless(message: str) -> str | None:
    """What is wrong for good with a creation that the provider only says it is retrying.

    It retries for a minute and a half what it takes for a matter of order, for
    example a namespace that does not exist.

    Args:
        message: Of any diagnostic.

    Returns:
        The API server's words, once the provider has retried long enough for
        an object made at the same moment to be there; else None.
    """
    match = _RETRY.fullmatch(message.strip())
    if match is None or int(match["attempt"]) < _PATIENCE:
        return None
    rule = next((rule for rule in RULES if rule.pattern.search(match["words"])), None)
    return match["words"] if rule is not None and not rule.transient else None


def _causes(failure: Failure) -> Iterator[_Cause]:
    found = [
        (_place(diagnostic.urn), _unwrapped(diagnostic.message))
        for diagnostic in failure.diagnostics
        if diagnostic.severity == "error" and not is_echo(diagnostic.message)
    ]
    if not found:
        # Before the engine proper runs there are no events, only text. It may take several lines.
        start = _PRINTED_ERROR.search(failure.output)
        found = [("", _unwrapped(failure.output[start.start() :].strip()))] if start is not None else []
    for place, text in found:
        for rule in RULES:
            match = rule.pattern.search(text)
            if match is not None:
                yield _Cause(place, text, rule, match)
                break
        else:
            yield _Cause(place, text, None, None)


def _unwrapped(text: str) -> str:
    return _WRAPPERS.sub("", text.strip(), count=1).strip()


def _place(urn: str) -> str:
    # urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME
    parts = urn.split("::")
    if len(parts) < 4:
        return ""
    kind = parts[2].rsplit("$", 1)[-1].rsplit(":", 1)[-1]
    return f"{kind} {parts[-1]}"
