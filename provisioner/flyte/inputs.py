"""Inputs of a task that fill its specification: `replicas="{{.inputs.replicas}}"`.

A value that is a template and nothing else becomes the input itself, with its
type: a number stays a number, a list a list. In a field that holds text, and
inside of a longer text, it becomes text. Flyte gives inputs to CreateTask, so
what an input makes wrong is known only there; all the rest is checked when
the workflow is loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
from flytekit.models.literals import Literal, LiteralMap, Primitive, Scalar
from google.protobuf import json_format

from provisioner.errors import Problem, SpecError
from provisioner.spec import ServiceConfig, parse_config
from provisioner.spec.community import from_community, is_community
from provisioner.spec.load import plain

# As Flyte reads it in the arguments of a container.
_TEMPLATE = re.compile(r"\{\{\s*[.$]inputs\.(\w+)\s*\}\}", re.ASCII | re.IGNORECASE)
# Fields below which every value is text, in which a number is written out.
_TEXTS = ("image", "command", "args", "env", "nodeselector", "labels", "annotations", "serviceaccount")


@dataclass(frozen=True)
class Reference:
    """One place that an input fills.

    Attributes:
        path: The field, for example `spec.replicas`.
        name: Name of the input.
        whole: Whether the field is the template and nothing else.
    """

    path: str
    name: str
    whole: bool


def parse(custom: Any, inputs: LiteralMap | None, *, source: str) -> ServiceConfig:
    """Read what a task asks for, with its inputs put in.

    Args:
        custom: The `custom` field of the task template, as a mapping.
        inputs: The inputs of this execution.
        source: Where it came from, for the error.

    Raises:
        SpecError: With every problem in it; one that an input made names the
            field and the input.
    """
    document = _in_our_names(custom, source)
    references = list(_references(document))
    if not references:
        return parse_config(document, source=source)
    literals = dict(inputs.literals) if inputs else {}
    values: dict[str, Any] = {}
    problems = []
    for reference in references:
        try:
            values[reference.name] = value_of(literals[reference.name])
        except KeyError:
            problems.append(_unknown(reference, literals))
        except ValueError as error:
            problems.append(Problem(reference.path, "", f"input {reference.name} {error}"))
    if problems:
        raise SpecError(problems, source=source)

    def put(reference: Reference) -> Any:
        value = values[reference.name]
        if reference.whole and not _is_text(reference.path):
            return value
        try:
            return _text(value, optional=reference.whole)
        except ValueError as error:
            problems.append(Problem(reference.path, "", f"input {reference.name} {error}"))
            return ""

    filled = _replaced(document, put)
    if problems:
        raise SpecError(problems, source=source)
    try:
        return parse_config(filled, source=source)
    except SpecError as error:
        raise SpecError([_with_input(problem, references) for problem in error.problems], source=source) from error


def check(custom: Any, declared: Collection[str], *, source: str) -> None:
    """Find what is wrong before there are inputs.

    Args:
        custom: The `custom` field of the task template, as a mapping.
        declared: Names of the task's inputs.
        source: Where it came from, for the error.

    Raises:
        SpecError: With every problem that no input can cure.
    """
    document = _in_our_names(custom, source)
    references = list(_references(document))
    problems = [_unknown(reference, declared) for reference in references if reference.name not in declared]
    try:
        parse_config(document, source=source)
    except SpecError as error:
        problems += [problem for problem in error.problems if not _filled_by(problem, references)]
    if problems:
        raise SpecError(problems, source=source)


def _in_our_names(custom: Any, source: str) -> Any:
    document = plain(custom)
    if isinstance(document, Mapping) and is_community(document):
        return from_community(document, source=source)
    return document


def _references(value: Any, path: str = "") -> Iterator[Reference]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _references(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, f"{path}[{index}]")
    elif isinstance(value, str):
        for match in _TEMPLATE.finditer(value):
            yield Reference(path, match[1], whole=match[0] == value.strip())


def _replaced(value: Any, put: Callable[[Reference], Any], path: str = "") -> Any:
    if isinstance(value, Mapping):
        items = {key: _replaced(item, put, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
        # An optional input that was not given leaves the field to its default.
        return {key: item for key, item in items.items() if item is not None}
    if isinstance(value, list):
        return [_replaced(item, put, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, str):
        whole = _TEMPLATE.fullmatch(value.strip())
        if whole:
            return put(Reference(path, whole[1], whole=True))
        return _TEMPLATE.sub(lambda match: str(put(Reference(path, match[1], whole=False))), value)
    return value


def _is_text(path: str) -> bool:
    # A whole list or map of texts is no text: `command`, but not `command[0]`.
    parts = re.split(r"[.\[]", path)
    if parts[:1] != ["spec"]:
        return True
    field = _spelling(parts[1])
    return field in _TEXTS and (len(parts) > 2 or field in ("image", "serviceaccount"))


def _text(value: Any, *, optional: bool) -> Any:
    """A value inside of a text, as Flyte writes it there."""
    if isinstance(value, str) or (value is None and optional):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
    kind = "was not given" if value is None else f"is a {'map' if isinstance(value, Mapping) else 'list'}"
    raise ValueError(f"{kind}, and a text is needed here")


def value_of(literal: Literal) -> Any:
    """An input as plain data.

    Raises:
        ValueError: It is of a kind that no field can take; the message goes after "input NAME".
    """
    if literal.collection is not None:
        return [value_of(item) for item in literal.collection.literals]
    if literal.map is not None:
        return {key: value_of(item) for key, item in literal.map.literals.items()}
    if literal.scalar is None:
        raise ValueError("is too large: Flyte offloaded it, and no field takes so much")
    return _of_scalar(literal.scalar)


def _of_scalar(scalar: Scalar) -> Any:
    if scalar.primitive is not None:
        return _of_primitive(scalar.primitive)
    if scalar.none_type is not None:
        return None
    if scalar.union is not None:
        return value_of(scalar.union.value)
    if scalar.binary is not None and scalar.binary.tag == "msgpack":
        # What flytekit makes of a dict, a dataclass, and a part of one.
        return msgpack.unpackb(scalar.binary.value, strict_map_key=False)
    if scalar.generic is not None:
        return plain(json_format.MessageToDict(scalar.generic))
    for stored in (scalar.blob, scalar.structured_dataset, scalar.schema):
        if stored is not None:
            return stored.uri
    raise ValueError("is of a kind that no field takes: a number, text, boolean, duration, list, map or file is needed")


def _of_primitive(primitive: Primitive) -> Any:
    if primitive.duration is not None:
        return primitive.duration.total_seconds()
    if primitive.datetime is not None:
        return primitive.datetime.isoformat()
    return primitive.value


def _unknown(reference: Reference, declared: Collection[str]) -> Problem:
    known = f"it has {', '.join(sorted(declared))}" if declared else "it has none"
    return Problem(reference.path, f"{{{{.inputs.{reference.name}}}}}", f"the name of an input of the task; {known}")


def _filled_by(problem: Problem, references: Collection[Reference]) -> list[Reference]:
    """The inputs that fill the field, or a part of the field, that a problem is about."""
    # A document may write a field in Python's spelling; a problem names it in Kubernetes' own.
    at = _spelling(problem.path)
    return [reference for reference in references if re.match(rf"{re.escape(_spelling(reference.path))}($|[.\[])", at)]


def _spelling(path: str) -> str:
    return path.replace("_", "").lower()


def _with_input(problem: Problem, references: Collection[Reference]) -> Problem:
    names = dict.fromkeys(reference.name for reference in _filled_by(problem, references))
    if not names:
        return problem
    origin = f"{'input' if len(names) == 1 else 'inputs'} {' and '.join(names)}"
    return Problem(problem.path, problem.value, f"{problem.accepted}; its value comes from {origin}")
