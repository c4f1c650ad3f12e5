"""Read a specification from a task template's `custom` field, in our own names or the community plugin's.

Flyte carries `custom` as a protobuf Struct, in which every number is a float
and a field that was not set is null. Both are undone here, once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from provisioner.errors import Problem, SpecError
from provisioner.spec.base import Model, shape
from provisioner.spec.community import from_community, is_community
from provisioner.spec.model import DataServiceSpec
from provisioner.spec.problems import problems_of

# 52 characters: a StatefulSet labels its pods NAME-HASH with a hash of up to 10
# characters, and a label's value has 63. A Service's name starts with a letter
# (DNS-1035).
NAME_LENGTH = 52
_NAME = re.compile(rf"[a-z]([-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?")


def is_service_name(value: str) -> bool:
    """Whether a text can be the name of a service."""
    return _NAME.fullmatch(value) is not None


def _service_name(value: str) -> str:
    if not is_service_name(value):
        raise ValueError(f"a name of up to {NAME_LENGTH} of a-z, 0-9 and dashes, that starts with a letter")
    return value


ServiceName = Annotated[str, AfterValidator(_service_name), shape(_NAME)]


class ServiceConfig(Model):
    """What a task asks for: a service of its own, or one that exists.

    Exactly one of `spec` and `existing_release_name` is set.
    """

    name: ServiceName | None = Field(default=None, description="readable part of the service's name")
    existing_release_name: ServiceName | None = Field(
        default=None, description="name of a service that exists already, to be waited for and used"
    )
    shared: bool = Field(
        default=False, description="whether all executions of the project and domain use one service of this very name"
    )
    cluster: str | None = Field(default=None, description="accepted for compatibility; this provisioner's own cluster")
    spec: DataServiceSpec | None = Field(default=None, description="the service to create")


def plain(value: Any) -> Any:
    """A Struct's value as it was written: whole floats are integers, nulls are left out."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def parse_spec(document: Any, *, source: str = "spec") -> DataServiceSpec:
    """Check a specification.

    Args:
        document: A mapping with the fields of `DataServiceSpec`.
        source: Where it came from, for the error.

    Raises:
        SpecError: With every problem in it.
    """
    if not isinstance(document, Mapping):
        raise SpecError([Problem("spec", type(document).__name__, "a mapping of fields")], source=source)
    try:
        return DataServiceSpec.model_validate(document)
    except ValidationError as error:
        raise SpecError(problems_of(error, DataServiceSpec), source=source) from error


def parse_config(custom: Any, *, source: str = "task_config") -> ServiceConfig:
    """Read what a task asks for.

    Args:
        custom: The `custom` field of the task template, as a mapping.
        source: Where it came from, for the error.

    Raises:
        SpecError: With every problem in it.
    """
    if not isinstance(custom, Mapping):
        raise SpecError([Problem("custom", type(custom).__name__, "a mapping of fields")], source=source)
    document = plain(custom)
    if is_community(document):
        document = from_community(document, source=source)
    try:
        config = ServiceConfig.model_validate(document)
    except ValidationError as error:
        raise SpecError(problems_of(error, ServiceConfig), source=source) from error
    if (config.spec is None) == (config.existing_release_name is None):
        raise SpecError(
            [Problem("spec", "", "give either a service to create (image, ports, ...) or the name of an existing one")],
            source=source,
        )
    if config.shared and (config.name is None or config.spec is None):
        problem = Problem("shared", "true", "a service to create (image, ports, ...) and its name, which others use")
        raise SpecError([problem], source=source)
    return config
