"""Settings of the janitor: each from one environment variable `PROVISIONER_GC_*`, rules by project from a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from provisioner.errors import UsageError
from provisioner.janitor.policy import Override, Policy, Retry, Rules, Source
from provisioner.spec import format_duration, parse_duration

ENV_PREFIX = "PROVISIONER_GC_"
_NEVER = "never"
_RULES = Rules()
_POLICY = Policy()
_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?)%")


def _seconds(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value}s"
    if not isinstance(value, str):
        raise ValueError("a duration such as 90s, 15m or 1d, or 0s")
    return 0 if value.strip() in ("0", "0s") else parse_duration(value)


def _seconds_or_never(value: Any) -> Any:
    return None if value is None or value == _NEVER else _seconds(value)


def _share(value: Any) -> Any:
    if isinstance(value, str):
        match = _SHARE.fullmatch(value.strip())
        if match is None:
            raise ValueError("a share such as 50%, or a number from 0 to 1")
        return float(match[1]) / 100
    return value


def _words(value: Any) -> Any:
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


Wait = Annotated[int, BeforeValidator(_seconds), PlainSerializer(format_duration, return_type=str)]
WaitOrNever = Annotated[
    int | None,
    BeforeValidator(_seconds_or_never),
    PlainSerializer(lambda value: _NEVER if value is None else format_duration(value), return_type=str),
]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Sources = Annotated[tuple[Source, ...], NoDecode, BeforeValidator(_words), Field(min_length=1)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class RuleSet(_Document):
    """Other rules for some projects and domains."""

    project: str = Field(default="*", description="pattern of the project, with * and ?")
    domain: str = Field(default="*", description="pattern of the domain, with * and ?")
    min_age: Wait | None = Field(default=None, description="as the setting of this name")
    grace: Wait | None = Field(default=None, description="as the setting of this name")
    failure_retention: Wait | None = Field(default=None, description="as the setting of this name")
    notice: Wait | None = Field(default=None, description="as the setting of this name")
    volume_retention: WaitOrNever = Field(default=None, description="as the setting of this name")
    max_age: WaitOrNever = Field(default=None, description="as the setting of this name")
    keep: bool | None = Field(default=None, description="keep everything of these")

    def override(self) -> Override:
        """As the policy takes it: what the document names, and nothing else."""
        named = sorted(self.model_fields_set - {"project", "domain"})
        return Override(self.project, self.domain, tuple((name, getattr(self, name)) for name in named))


class RulesFile(_Document):
    """The document that `PROVISIONER_GC_RULES` names."""

    rules: tuple[RuleSet, ...] = Field(description="in order; a later one wins")


class JanitorSettings(BaseSettings):
    """All settings of the janitor.

    Example:
        >>> JanitorSettings(grace="1h").grace
        3600
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    owners: Sources = Field(
        default=tuple(sorted(_POLICY.sources)),
        description="who is asked about owners: flyteworkflow, flyteadmin, lease, object; or none (ttl alone)",
    )
    min_age: Wait = Field(default=_RULES.min_age, description="nothing that changed within this time is touched")
    grace: Wait = Field(default=_RULES.grace, description="time between the end of the owner and the removal")
    failure_retention: Wait = Field(
        default=3600, description="the same for an owner that failed, so that people can look"
    )
    notice: Wait = Field(
        default=_RULES.notice, description="time between the first sweep that finds an orphan and its removal"
    )
    volume_retention: WaitOrNever = Field(
        default=_RULES.volume_retention,
        description="for how long claims that outlive their service are kept, or never to remove them",
    )
    max_age: WaitOrNever = Field(
        default=None, description="lifetime of services without a ttl whose owner nobody can be asked about"
    )
    rules: Path | None = Field(default=None, description="YAML or JSON file with other rules by project and domain")
    max_destroys: int = Field(
        default=_POLICY.max_destroys, ge=1, le=10_000, description="services that one sweep removes at most"
    )
    max_share: Share = Field(
        default=_POLICY.max_share, description="share of all services above which a sweep removes none"
    )
    brake_from: int = Field(
        default=_POLICY.brake_from,
        ge=0,
        le=10_000,
        description="removals up to this number never count as too large a share",
    )
    unmarked: Literal["keep", "remove"] = Field(
        default="keep",
        description="what is done with orphans that do not say which cluster or backend they belong to",
    )
    cluster: str = Field(
        default="", description="uid of the kube-system namespace of the cluster that this janitor is for; else any"
    )
    namespaces: Words = Field(default=(), description="namespaces that are swept; all when empty")
    parallel: int = Field(default=4, ge=1, le=64, description="removals that run at once")
    readers: int = Field(default=8, ge=1, le=128, description="checkpoints and owners that are asked for at once")
    verify_timeout: Annotated[int, BeforeValidator(_seconds), Field(ge=1, le=3600)] = Field(
        default=120, description="time for objects to be really gone after their deletion"
    )
    retry_first: Annotated[int, BeforeValidator(_seconds), Field(ge=1)] = Field(
        default=_POLICY.retry.first, description="wait after a failed removal; doubled with each further failure"
    )
    retry_cap: Annotated[int, BeforeValidator(_seconds), Field(ge=1)] = Field(
        default=_POLICY.retry.cap, description="longest wait after a failed removal"
    )
    stalled_after: int = Field(
        default=5, ge=1, le=100, description="failures in a row after which a person is asked for"
    )
    lock_pods: str = Field(
        default="",
        pattern=r"^$|^[a-z0-9-]+/[a-z0-9.-]+$",
        description="NAMESPACE/PREFIX of the pods that run operations: the lock of one that is gone counts as dead",
    )
    records: str = Field(
        default="", description="URL of the place for the janitor's own notes; beside the stacks when empty"
    )
    backups_kept: int = Field(default=3, ge=0, le=1000, description="backups of a checkpoint that are kept")
    lease: str = Field(
        default="data-service-janitor", min_length=1, description="name of the Lease by which one replica is elected"
    )
    lease_namespace: str = Field(default="", description="namespace of that Lease; else the settings' own namespace")
    lease_seconds: int = Field(default=30, ge=3, le=600, description="seconds after which a silent leader is replaced")

    @model_validator(mode="after")
    def _consistent(self) -> JanitorSettings:
        if Source.NONE in self.owners and len(self.owners) > 1:
            raise ValueError("owners: none stands alone")
        if self.retry_cap < self.retry_first:
            raise ValueError("retry_cap: at least retry_first")
        return self

    def policy(self) -> Policy:
        """The policy that these settings make.

        Raises:
            UsageError: The file with the rules cannot be read, or is not valid.
        """
        return Policy(
            default=Rules(
                min_age=self.min_age,
                grace=self.grace,
                failure_retention=self.failure_retention,
                notice=self.notice,
                volume_retention=self.volume_retention,
                max_age=self.max_age,
            ),
            overrides=read_rules(self.rules) if self.rules is not None else (),
            sources=frozenset(self.owners),
            max_destroys=self.max_destroys,
            max_share=self.max_share,
            brake_from=self.brake_from,
            unmarked=self.unmarked == "remove",
            cluster=self.cluster,
            retry=Retry(self.retry_first, self.retry_cap, self.stalled_after),
        )


def read_rules(path: Path) -> tuple[Override, ...]:
    """Read the rules by project and domain.

    Args:
        path: A YAML or JSON file.

    Raises:
        UsageError: It cannot be read, or is not valid; every problem is named.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(
            f"rules {path} cannot be read: {error}",
            reason="RulesInvalid",
            hint=f"name a YAML or JSON file in {ENV_PREFIX}RULES",
        ) from error
    try:
        return tuple(item.override() for item in RulesFile.model_validate(document).rules)
    except ValidationError as error:
        raise UsageError(
            f"rules {path} are not valid: {_problems(error)}",
            reason="RulesInvalid",
            hint="see the section about rules in docs/janitor.md",
        ) from error


def load(**given: Any) -> JanitorSettings:
    """Read the settings from the environment.

    Args:
        given: Settings that a command line gives; None counts as not given.

    Raises:
        UsageError: A value is not accepted; all such are named.
    """
    try:
        return JanitorSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise UsageError(
            f"settings of the janitor are not valid: {_problems(error, ENV_PREFIX)}",
            hint=f"correct these options or environment variables ({ENV_PREFIX}...)",
        ) from error


def _problems(error: ValidationError, prefix: str = "") -> str:
    shown = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        shown.append(f"{prefix + where.upper() if prefix and where else where}: {message}".removeprefix(": "))
    return "; ".join(shown)
