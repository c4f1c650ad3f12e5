"""What all parts of a specification share: the base of the models and Kubernetes' rules for names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")
# Kubernetes asks only for a non-empty image without surrounding space; the
# kubelet then refuses what is not a reference (InvalidImageName). The grammar
# is that of distribution/reference.
_IMAGE = re.compile(
    r"(?=.{1,512}$)"
    r"((?:[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::\w[\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
_RESERVED_PREFIX = "data-service-provisioner/"


def integral(value: Any) -> Any:
    """Undo what a protobuf Struct does to integers: 3.0 is 3."""
    if isinstance(value, bool):
        raise ValueError("a whole number, not true or false")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _matches(pattern: re.Pattern[str], accepted: str) -> AfterValidator:
    def check(value: str) -> str:
        if pattern.fullmatch(value) is None:
            raise ValueError(accepted)
        return value

    return AfterValidator(check)


def is_object_name(value: str) -> bool:
    """Whether a text can be the name of most Kubernetes objects."""
    return len(value) <= 253 and _DNS_SUBDOMAIN.fullmatch(value) is not None


def shape(pattern: re.Pattern[str] | str, *kinds: str) -> WithJsonSchema:
    """What an editor can check of a text by itself.

    Args:
        pattern: Of the whole text, in the syntax that Python and ECMAScript share.
        kinds: Types that are accepted beside a string.
    """
    text = pattern if isinstance(pattern, str) else pattern.pattern
    return WithJsonSchema({"type": ["string", *kinds] if kinds else "string", "pattern": f"^{text}$"})


def _qualified_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    prefix_ok = not slash or (len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix) is not None)
    if not prefix_ok or _QUALIFIED.fullmatch(name) is None:
        raise ValueError("a key such as team or example.com/team")
    if value.startswith(_RESERVED_PREFIX):
        raise ValueError(f"a key outside of {_RESERVED_PREFIX}, which belongs to the provisioner")
    return value


def _port_reference(value: Any) -> int | str:
    number = integral(value)
    if isinstance(number, int) and 1 <= number <= 65535:
        return number
    if isinstance(number, str):
        return _port_name(number)
    raise ValueError("the name or the number of a declared port")


def _port_name(value: str) -> str:
    # IANA service name, RFC 6335 section 5.1.
    if re.fullmatch(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", value) is None or "--" in value:
        raise ValueError("up to 15 of a-z, 0-9 and single dashes inside, with at least one letter")
    return value


# Put last, so that the bounds before it stay visible in the JSON Schema.
WHOLE = BeforeValidator(integral)
PortNumber = Annotated[int, Field(ge=1, le=65535), WHOLE]
PortName = Annotated[str, AfterValidator(_port_name), shape(r"(?!.*--)(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")]
PortReference = Annotated[int | str, PlainValidator(_port_reference, json_schema_input_type=int | str)]
Image = Annotated[
    str, _matches(_IMAGE, "an image reference such as registry.example.com/team/store:1.2"), shape(_IMAGE)
]
DNSSubdomain = Annotated[
    str,
    Field(max_length=253),
    _matches(_DNS_SUBDOMAIN, "a name of a-z, 0-9, dashes and dots (DNS-1123 subdomain)"),
    shape(_DNS_SUBDOMAIN),
]
DNSLabel = Annotated[
    str,
    _matches(_DNS_LABEL, "a name of up to 63 of a-z, 0-9 and dashes (DNS-1123 label)"),
    shape(_DNS_LABEL),
]
LabelKey = Annotated[str, AfterValidator(_qualified_key)]
LabelValue = Annotated[
    str,
    _matches(re.compile(rf"({_QUALIFIED.pattern})?"), "up to 63 of letters, digits, '-', '_' and '.' inside"),
]
EnvName = Annotated[str, _matches(re.compile(r"[ -<>-~]+"), "printable ASCII characters other than '=', at least one")]
Count = Annotated[int, Field(ge=1, le=3600), WHOLE]


@dataclass(frozen=True)
class Broken:
    """A rule over several fields that does not hold.

    Attributes:
        place: The field at fault, from this model on, as users write it.
        accepted: What must be there, as a phrase after "must be".
    """

    place: tuple[str | int, ...]
    accepted: str


class Model(BaseModel):
    """Base of all parts: frozen, camelCase outside, unknown fields refused.

    A part with rules over several fields overrides `rules`. All that do not
    hold are reported together, and with the fields that are wrong in
    themselves, so that a document is corrected in one go.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    # Values for required fields that are wrong, with which the rules over the others can still be checked.
    stand_ins: ClassVar[Mapping[str, Any]] = {}

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:  # noqa: ARG002 - for those who override it
        """The rules that do not hold.

        Args:
            wrong: Fields with a wrong value, in whose place a default or a
                stand-in stands; as users write them.
        """
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            value = handler(data)
        except ValidationError as error:
            broken = cls._rules_of_the_rest(data, handler, error)
            if not broken:
                raise
            details = [_init_details(item) for item in error.errors()]
            raise ValidationError.from_exception_data(cls.__name__, [*details, *_details(broken, data)]) from error
        broken = list(value.rules())
        if broken:
            raise ValidationError.from_exception_data(cls.__name__, _details(broken, data))
        return value

    @classmethod
    def _rules_of_the_rest(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], error: ValidationError
    ) -> list[Broken]:
        """The rules that do not hold among the fields that are right in themselves."""
        if not isinstance(data, Mapping):
            return []
        wrong = frozenset(str(item["loc"][0]) for item in error.errors() if item["loc"])
        names = {name for name, field in cls.model_fields.items() if {name, field.alias} & wrong}
        rest = {key: value for key, value in data.items() if key not in wrong and key not in names}
        stand_ins = {name: value for name, value in cls.stand_ins.items() if name in names}
        try:
            return list(handler({**rest, **stand_ins}).rules(wrong))
        except ValidationError:
            return []


def _details(broken: Iterable[Broken], data: Any) -> list[InitErrorDetails]:
    return [
        InitErrorDetails(
            type=PydanticCustomError("rule", "{accepted}", {"accepted": item.accepted}), loc=item.place, input=data
        )
        for item in broken
    ]


def _init_details(item: ErrorDetails) -> InitErrorDetails:
    context = item.get("ctx", {})
    if item["type"] == "rule":
        kind: str | PydanticCustomError = PydanticCustomError("rule", "{accepted}", context)
        return InitErrorDetails(type=kind, loc=item["loc"], input=item["input"])
    return InitErrorDetails(type=item["type"], loc=item["loc"], input=item["input"], ctx=context)
