"""What may be removed, and when: the deployment's rules as one frozen value.

Rules differ by project and domain, because what is a generous grace in
development is a lost night's result in production. Bounds of a whole sweep do
not: they guard against the janitor itself being wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

DAY = 86400


class Source(StrEnum):
    """Who is asked whether an owner still needs its service."""

    FLYTEWORKFLOW = "flyteworkflow"
    FLYTEADMIN = "flyteadmin"
    LEASE = "lease"
    OBJECT = "object"
    NONE = "none"


EXECUTION_SOURCES = frozenset({Source.FLYTEWORKFLOW, Source.FLYTEADMIN})


@dataclass(frozen=True)
class Rules:
    """When something of one project and domain is removed; all in seconds.

    Attributes:
        min_age: Nothing that changed within this time is touched.
        grace: Between the end of the owner and the removal.
        failure_retention: The same, for an owner that failed.
        notice: Between the first sweep that finds it and the removal.
        volume_retention: For how long claims that outlive their service are
            kept; None for ever.
        max_age: Lifetime of a service whose owner nobody can be asked about
            and that has no ttl; None without a bound.
        executions: Whether somebody is asked about executions that own services.
        keep: Whether everything is kept.
    """

    min_age: int = 600
    grace: int = 900
    failure_retention: int = 3600
    notice: int = 600
    volume_retention: int | None = 30 * DAY
    max_age: int | None = None
    executions: bool = True
    keep: bool = False


@dataclass(frozen=True)
class Override:
    """Other rules for some projects and domains; what is not named stays.

    Attributes:
        project: Pattern of the project, with `*` and `?`.
        domain: Pattern of the domain.
        changes: Rule -> its value here.
    """

    project: str = "*"
    domain: str = "*"
    changes: tuple[tuple[str, int | bool | None], ...] = ()

    def __post_init__(self) -> None:
        unknown = {name for name, _ in self.changes} - {item.name for item in fields(Rules)}
        if unknown:
            raise ValueError(f"no rules: {', '.join(sorted(unknown))}")

    def applies(self, project: str, domain: str) -> bool:
        """Whether it is meant for a project and domain."""
        return fnmatchcase(project, self.project) and fnmatchcase(domain, self.domain)


@dataclass(frozen=True)
class Retry:
    """How a failed removal is repeated.

    Attributes:
        first: Seconds after the first failure; doubled with each further one.
        cap: Longest wait in seconds.
        stalled_after: Failures in a row after which a person is asked for.
    """

    first: int = 300
    cap: int = 6 * 3600
    stalled_after: int = 5

    def delay(self, failures: int) -> timedelta:
        """How long to wait after failures in a row.

        Args:
            failures: At least 1.
        """
        return timedelta(seconds=min(self.cap, self.first * 2 ** min(failures - 1, 32)))


@dataclass(frozen=True)
class Policy:
    """All that a plan depends on besides the inventory and the time.

    Attributes:
        default: Rules where no override applies.
        overrides: Other rules by project and domain; a later one wins.
        sources: Who is asked about owners.
        max_destroys: Services that one sweep removes at most.
        max_share: Share of all services, from 0 to 1, above which a sweep removes none.
        brake_from: Removals up to this number never count as too large a share.
        unmarked: Whether stacks and objects are removed that do not say which
            cluster or backend they belong to.
        cluster: Uid of the kube-system namespace of the cluster that this janitor is for, or "" for any.
        retry: How a failed removal is repeated.
    """

    default: Rules = field(default_factory=Rules)
    overrides: tuple[Override, ...] = ()
    sources: frozenset[Source] = frozenset({Source.FLYTEWORKFLOW, Source.LEASE, Source.OBJECT})
    max_destroys: int = 50
    max_share: float = 0.5
    brake_from: int = 10
    unmarked: bool = False
    cluster: str = ""
    retry: Retry = field(default_factory=Retry)

    def asks_execution(self, project: str, domain: str) -> bool:
        """Whether anybody is asked about the executions of a project and domain.

        Args:
            project: Flyte project.
            domain: Flyte domain.
        """
        return bool(self.sources & EXECUTION_SOURCES) and self.rules(project, domain).executions

    def rules(self, project: str, domain: str) -> Rules:
        """The rules of a project and domain.

        Args:
            project: Flyte project, "" if unknown.
            domain: Flyte domain, "" if unknown.
        """
        rules = self.default
        for override in self.overrides:
            if override.applies(project, domain):
                rules = replace(rules, **dict(override.changes))  # type: ignore[arg-type]
        return rules
