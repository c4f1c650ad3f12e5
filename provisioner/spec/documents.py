"""Read services from YAML, as Kubernetes users write them: one document or several.

apiVersion: data-service/v1
kind: DataService
metadata: {name: graph, namespace: team-a, project: flyte, domain: production}
spec: {image: ..., ports: [...]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from provisioner.errors import Problem, SpecError
from provisioner.spec.base import DNSLabel, Model
from provisioner.spec.load import ServiceName, plain
from provisioner.spec.model import DataServiceSpec
from provisioner.spec.problems import problems_of

API_VERSION = "data-service/v1"
# A document is a page of text; more is a mistake, or an attack by expansion.
_MOST_CHARACTERS = 1_000_000

Scope = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$")]


class Metadata(Model):
    """How a service is called, and whose it is."""

    name: ServiceName = Field(description="name of the service, unique in its namespace")
    namespace: DNSLabel | None = Field(default=None, description="Kubernetes namespace; the setting's when none")
    project: Scope | None = Field(default=None, description="Flyte project it belongs to")
    domain: Scope | None = Field(default=None, description="Flyte domain it belongs to")


class ServiceDocument(Model):
    """One data service, declared."""

    api_version: Literal["data-service/v1"] = Field(description="version of this format")
    kind: Literal["DataService"] = Field(default="DataService", description="kind of the document")
    metadata: Metadata = Field(description="how it is called")
    spec: DataServiceSpec = Field(description="what it is")

    @field_validator("spec", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return plain(value) if isinstance(value, Mapping) else value


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, not the last one's win."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    seen: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is not a text", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _load_all(text: str, source: str) -> list[Any]:
    if len(text) > _MOST_CHARACTERS:
        raise SpecError([Problem("document", f"{len(text)} characters", f"at most {_MOST_CHARACTERS}")], source=source)
    try:
        return [document for document in yaml.load_all(text, Loader=_UniqueKeys) if document is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "document"
        raise SpecError([Problem(place, "", f"YAML: {error.problem or error}")], source=source) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SpecError([Problem("document", "", f"YAML: {error}")], source=source) from error


def parse_documents(text: str, *, source: str) -> tuple[ServiceDocument, ...]:
    """Read every service of a YAML text.

    Args:
        text: One document, or several with `---` between them. JSON is YAML.
        source: Where it came from, for the error.

    Raises:
        SpecError: With the problems of all documents.
    """
    services: list[ServiceDocument] = []
    problems: list[Problem] = []
    documents = _load_all(text, source)
    for index, document in enumerate(documents):
        prefix = (index,) if len(documents) > 1 else ()
        if not isinstance(document, Mapping):
            where = f"[{index}]" if prefix else "document"
            problems.append(Problem(where, type(document).__name__, f"a mapping with apiVersion: {API_VERSION}"))
            continue
        try:
            services.append(ServiceDocument.model_validate(document))
        except ValidationError as error:
            problems += problems_of(error, ServiceDocument, prefix)
    if not documents:
        problems.append(Problem("document", "", "at least one service; this is empty"))
    if problems:
        raise SpecError(problems, source=source)
    return tuple(services)
