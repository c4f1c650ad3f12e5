"""Settings of the janitor: each from one environment variable `PROVISIONER_GC_*`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from provisioner.errors import UsageError
from provisioner.janitor.policy import Policy, Retry, Rules, Source
from provisioner.janitor.rules import read_rules
from provisioner.janitor.written import LockPods, Share, Sources, Wait, WaitOrNever, Words
from provisioner.settings import Written, read_file

ENV_PREFIX = "PROVISIONER_GC_"
_RULES = Rules()
_POLICY = Policy()
# What Kubernetes puts into the environment of a pod beside a Service whose name begins with `provisioner-gc`.
_SERVICE_LINK = re.compile(r"_(SERVICE_(HOST|PORT)|PORT)(_[A-Z0-9_]+)?$")
# Options that are not called as their settings.
_OPTIONS = {"namespaces": "namespace"}


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
    verify_timeout: Wait = Field(
        default=120, ge=1, le=3600, description="time for objects to be really gone after their deletion"
    )
    retry_first: Wait = Field(
        default=_POLICY.retry.first, ge=1, description="wait after a failed removal; doubled with each further failure"
    )
    retry_cap: Wait = Field(default=_POLICY.retry.cap, ge=1, description="longest wait after a failed removal")
    stalled_after: int = Field(
        default=5, ge=1, le=100, description="failures in a row after which a person is asked for"
    )
    lock_pods: LockPods = Field(
        default="",
        description="the pods that run operations, by the beginning of their names: a lock of one that is gone is dead",
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
            raise ValueError("of the owners that are asked, none stands alone")
        if self.retry_cap < self.retry_first:
            raise ValueError(f"{ENV_PREFIX}RETRY_CAP: at least {ENV_PREFIX}RETRY_FIRST")
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


def load(**given: Any) -> JanitorSettings:
    """Read the settings from the environment.

    Args:
        given: Settings that a command line gives; None counts as not given.

    Raises:
        UsageError: A value is not accepted, or a variable is none of the
            settings; all such are named.
    """
    read_file()
    named = {name: value for name, value in given.items() if value is not None}
    problems = _misspelt()
    try:
        found = JanitorSettings(**named)
    except ValidationError as error:
        problems += [_problem(item, named) for item in error.errors()]
    if problems:
        shown = f" {problems[0]}" if len(problems) == 1 else "".join(f"\n  {problem}" for problem in problems)
        raise UsageError(
            f"settings of the janitor are not valid:{shown}",
            hint="see `provisioner gc --help`, and docs/janitor.md for the variables PROVISIONER_GC_...",
        )
    return found


def _misspelt() -> list[str]:
    """Variables that look like settings and are none: a bound with a typo in its name would bound nothing."""
    known = {f"{ENV_PREFIX}{name.upper()}" for name in JanitorSettings.model_fields}
    problems = []
    for variable in sorted(os.environ):
        if not variable.upper().startswith(ENV_PREFIX) or variable.upper() in known or _SERVICE_LINK.search(variable):
            continue
        close = difflib.get_close_matches(variable.upper(), known, 1)
        problems.append(f"{variable}: there is no such setting" + (f"; do you mean {close[0]}?" if close else ""))
    return problems


def _problem(item: ErrorDetails, named: Mapping[str, Any]) -> str:
    """One thing that is wrong: where it was given, what was given, what would be accepted."""
    message = item["msg"].removeprefix("Value error, ")
    if not item["loc"]:
        return message
    name = str(item["loc"][0])
    option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
    variable = f"{ENV_PREFIX}{name.upper()}"
    # As it was given: a validator may have changed what the error shows.
    where, value = (option, named[name]) if name in named else (variable, os.environ.get(variable, item["input"]))
    form = next((mark for mark in JanitorSettings.model_fields[name].metadata if isinstance(mark, Written)), None)
    for kind, word in (("greater_than_equal", "at least"), ("less_than_equal", "at most")):
        if item["type"] == kind:
            (bound,) = item["ctx"].values()
            message = f"{word} {form.bound(bound) if form is not None else bound}"
    if item["type"] == "too_short":
        message = "at least one is needed"
    return f"{where}={value}: {message}"
