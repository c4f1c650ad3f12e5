"""Whether owners live: each source answers for what it knows, and says so when it cannot be asked.

No source ever raises: an owner service that is away must not end a sweep, and
must not look like a thousand dead owners either. `Unknown` is the answer then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import structlog

from provisioner.janitor.facts import Liveness, Owner, Unknown
from provisioner.janitor.judge import combine

_log = structlog.get_logger(__name__)


class ExecutionSource(Protocol):
    """Knows Flyte executions."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def ask(self, owners: Collection[Owner]) -> Mapping[Owner, Liveness]:
        """Whether executions still run.

        Args:
            owners: Which; a source can know each, and each has a name.

        Returns:
            An answer for each.
        """


class ReferentSource(Protocol):
    """Knows Kubernetes objects that own services."""

    def ask(self, references: Collection[str]) -> Mapping[str, Liveness]:
        """Whether objects still need the service.

        Args:
            references: As in the annotation.

        Returns:
            An answer for each.
        """


class Executions:
    """All sources that know executions, as one.

    Args:
        sources: The chosen ones.
    """

    def __init__(self, sources: Sequence[ExecutionSource]) -> None:
        self._sources = tuple(sources)

    def ask(self, owners: Collection[Owner]) -> dict[Owner, Liveness]:
        """What all sources say together about executions.

        Args:
            owners: Which; those that no source can know are left out.
        """
        asked = [owner for owner in owners if owner.execution and not owner.unknowable]
        if not asked or not self._sources:
            return {}
        answers = [source.ask(asked) for source in self._sources]
        missing = Unknown("no answer about its execution")
        combined = {owner: combine([answer.get(owner, missing) for answer in answers]) or missing for owner in asked}
        unknown = [answer.why for answer in combined.values() if isinstance(answer, Unknown)]
        if unknown:
            _log.warning("owners cannot be asked about; what they own is kept", owners=len(unknown), why=unknown[0])
        return combined
