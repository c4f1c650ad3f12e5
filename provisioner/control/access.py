"""What each project and domain may have: namespaces, service accounts, services, replicas, GPUs.

The rules are a file of the platform's team, named by the setting `access`.
What no rule names is not bounded. A refusal says what is allowed, and a quota
says its figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from provisioner.errors import RefusedError, SpecError, UsageError
from provisioner.identity import Identity
from provisioner.spec import DataServiceSpec
from provisioner.spec.base import Model
from provisioner.spec.problems import problems_of
from provisioner.spec.quantity import parse_quantity

DEFAULT_SERVICE_ACCOUNT = "default"


class AccessRule(Model):
    """What the projects and domains of one pattern may have; what it does not name is left to earlier rules."""

    project: str = Field(default="*", description="pattern of the project, with * and ?")
    domain: str = Field(default="*", description="pattern of the domain, with * and ?")
    namespaces: tuple[str, ...] | None = Field(
        default=None, description="patterns of namespaces; {project} and {domain} stand for those of the service"
    )
    service_accounts: tuple[str, ...] | None = Field(
        default=None, description="patterns of service accounts; a service that names none has `default`"
    )
    services: int | None = Field(default=None, ge=0, description="services at once")
    replicas: int | None = Field(default=None, ge=0, description="replicas of all its services together")
    gpus: int | None = Field(default=None, ge=0, description="GPUs of all its replicas together")


class AccessFile(Model):
    """The document that the setting `access` names."""

    projects: tuple[AccessRule, ...] = Field(description="in order; what a later one names wins")


@dataclass(frozen=True)
class Consumption:
    """What services take of a quota.

    Attributes:
        services: Number of services.
        replicas: Number of their replicas.
        gpus: GPUs that these ask for.
    """

    services: int = 0
    replicas: int = 0
    gpus: int = 0

    def __add__(self, other: Consumption) -> Consumption:
        return Consumption(self.services + other.services, self.replicas + other.replicas, self.gpus + other.gpus)


@dataclass(frozen=True)
class Limits:
    """What one project and domain may have; None means without a bound.

    Attributes:
        namespaces: Patterns of namespaces.
        service_accounts: Patterns of service accounts.
        services: Services at once.
        replicas: Replicas of all its services.
        gpus: GPUs of all its replicas.
    """

    namespaces: tuple[str, ...] | None = None
    service_accounts: tuple[str, ...] | None = None
    services: int | None = None
    replicas: int | None = None
    gpus: int | None = None

    @property
    def has_quota(self) -> bool:
        """Whether what runs must be counted."""
        return any(bound is not None for bound in (self.services, self.replicas, self.gpus))


def limits(rules: Iterable[AccessRule], project: str, domain: str) -> Limits:
    """What a project and domain may have.

    Args:
        rules: In order; what a later one names wins.
        project: Flyte project.
        domain: Flyte domain.
    """
    named: dict[str, object] = {}
    for rule in rules:
        if fnmatchcase(project, rule.project) and fnmatchcase(domain, rule.domain):
            named |= {name: getattr(rule, name) for name in rule.model_fields_set - {"project", "domain"}}
    return Limits(**named)  # type: ignore[arg-type]


def check_account(allowed: Limits, project: str, domain: str, spec: DataServiceSpec) -> None:
    """Refuse a service account that a project may not use.

    Args:
        allowed: What it may have.
        project: Flyte project.
        domain: Flyte domain.
        spec: What the service is.

    Raises:
        RefusedError: It may not.
    """
    account = spec.service_account or DEFAULT_SERVICE_ACCOUNT
    _check("service account", account, allowed.service_accounts, project, domain, "ServiceAccountNotAllowed")


def check_namespace(allowed: Limits, project: str, domain: str, namespace: str) -> None:
    """Refuse a namespace that a project may not use.

    Args:
        allowed: What it may have.
        project: Flyte project.
        domain: Flyte domain.
        namespace: Which namespace.

    Raises:
        RefusedError: It may not.
    """
    _check("namespace", namespace, allowed.namespaces, project, domain, "NamespaceNotAllowed")


def check_quota(
    allowed: Limits, identity: Identity, others: Consumption, wanted: Consumption, before: Consumption
) -> None:
    """Refuse what would be more than a project may have.

    Args:
        allowed: What it may have.
        identity: The service.
        others: What its other services take.
        wanted: What this one would take.
        before: What this one takes already; what does not grow is not refused.

    Raises:
        RefusedError: It would be more; the figures are named.
    """
    over = []
    for name, bound in (("services", allowed.services), ("replicas", allowed.replicas), ("gpus", allowed.gpus)):
        used, more = getattr(others, name), getattr(wanted, name)
        if bound is not None and more > getattr(before, name) and used + more > bound:
            over.append(f"{name.upper() if name == 'gpus' else name}: {bound} allowed, {used} in use, {more} asked for")
    if over:
        raise RefusedError(
            f"the quota of {_whose(identity.project, identity.domain)} does not suffice: {'; '.join(over)}",
            reason="ProjectQuotaExceeded",
            hint="remove what is not needed (`provisioner list` shows it), ask for less, or ask the platform's team "
            "for more",
        )


def is_gpu(resource: str) -> bool:
    """Whether an extended resource is a GPU, or a share of one.

    Args:
        resource: For example `nvidia.com/gpu`.
    """
    vendor, slash, name = resource.partition("/")
    return bool(slash) and ("gpu" in f"{vendor}/{name}" or vendor == "nvidia.com")


def gpus_of(quantities: Mapping[str, str]) -> int:
    """The GPUs among the limits of one container.

    Args:
        quantities: Resource -> quantity.
    """
    return sum(int(parse_quantity(value)) for name, value in quantities.items() if is_gpu(name))


def consumption(spec: DataServiceSpec) -> Consumption:
    """What a service takes of a quota.

    Args:
        spec: What it is.
    """
    return Consumption(1, spec.replicas, spec.replicas * gpus_of(spec.resources.limits))


@lru_cache(maxsize=4)
def read_access(path: Path | None) -> tuple[AccessRule, ...]:
    """Read the rules, once per process.

    Args:
        path: A YAML or JSON file; None for no rules.

    Raises:
        UsageError: It cannot be read, or is not valid; every problem is named.
    """
    if path is None:
        return ()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        hint = "name a YAML or JSON file in PROVISIONER_ACCESS"
        raise UsageError(f"access rules {path} cannot be read: {error}", reason="AccessInvalid", hint=hint) from error
    try:
        return AccessFile.model_validate(document).projects
    except ValidationError as error:
        problems = SpecError(problems_of(error, AccessFile), source=f"access rules {path}")
        hint = "see the section about access in docs/flyte.md"
        raise UsageError(problems.message, reason="AccessInvalid", hint=hint) from error


def _check(what: str, value: str, patterns: tuple[str, ...] | None, project: str, domain: str, reason: str) -> None:
    if patterns is None:
        return
    filled = [pattern.replace("{project}", project).replace("{domain}", domain) for pattern in patterns]
    if not any(fnmatchcase(value, pattern) for pattern in filled):
        raise RefusedError(
            f"{what} {value!r} is not one that {_whose(project, domain)} may use: {', '.join(filled) or 'none'}",
            reason=reason,
            hint="use one of these, or ask the platform's team for another",
        )


def _whose(project: str, domain: str) -> str:
    return f"project {project!r}, domain {domain!r},"
