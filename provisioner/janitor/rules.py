"""Rules by project and domain, from a file: what is a generous grace in one is a lost night in another."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from provisioner.errors import UsageError
from provisioner.janitor.policy import Override
from provisioner.janitor.written import Wait, WaitOrNever

# Where nothing at all is a value of its own: never.
_OPTIONAL = frozenset({"volume_retention", "max_age"})


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
    executions: bool | None = Field(default=None, description="false: nobody is asked about executions of these")
    keep: bool | None = Field(default=None, description="keep everything of these")

    @model_validator(mode="after")
    def _valued(self) -> RuleSet:
        empty = sorted(name for name in self.model_fields_set - _OPTIONAL if getattr(self, name) is None)
        if empty:
            raise ValueError(f"{', '.join(to_camel(name) for name in empty)}: a value is missing")
        return self

    def override(self) -> Override:
        """As the policy takes it: what the document names, and nothing else."""
        named = sorted(self.model_fields_set - {"project", "domain"})
        return Override(self.project, self.domain, tuple((name, getattr(self, name)) for name in named))


class RulesFile(_Document):
    """The document that `PROVISIONER_GC_RULES` names."""

    rules: tuple[RuleSet, ...] = Field(description="in order; a later one wins")


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
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"rules {path} cannot be read: {why}",
            reason="RulesInvalid",
            hint="name a YAML or JSON file in PROVISIONER_GC_RULES, or with --rules",
        ) from error
    try:
        return tuple(item.override() for item in RulesFile.model_validate(document).rules)
    except ValidationError as error:
        raise UsageError(
            f"rules {path} are not valid: {_problems(error)}",
            reason="RulesInvalid",
            hint="see the section about rules in docs/janitor.md",
        ) from error


def _problems(error: ValidationError) -> str:
    shown = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        shown.append(f"{where}: {message}".removeprefix(": "))
    return "; ".join(shown)
