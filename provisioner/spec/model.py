"""The specification of one data service, as a frozen value.

Field names and their meaning are Kubernetes' own; the rules are those of its
API validation, so that what is accepted here is accepted there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    model_validator,
)
from pydantic.alias_generators import to_camel

from provisioner.spec.duration import Duration
from provisioner.spec.quantity import Quantity, parse_quantity

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


def _integral(value: Any) -> Any:
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


def _qualified_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    prefix_ok = not slash or (len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix) is not None)
    if not prefix_ok or _QUALIFIED.fullmatch(name) is None:
        raise ValueError("a key such as team or example.com/team")
    if value.startswith(_RESERVED_PREFIX):
        raise ValueError(f"a key outside of {_RESERVED_PREFIX}, which belongs to the provisioner")
    return value


def _port_reference(value: Any) -> int | str:
    number = _integral(value)
    if isinstance(number, int) and 1 <= number <= 65535:
        return number
    if isinstance(number, str):
        return _port_name(number)
    raise ValueError("the name or the number of a declared port")


def _env_kind(value: Any) -> str:
    return "reference" if isinstance(value, Mapping | EnvFrom) else "text"


def _port_name(value: str) -> str:
    # IANA service name, RFC 6335 section 5.1.
    if re.fullmatch(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", value) is None or "--" in value:
        raise ValueError("up to 15 of a-z, 0-9 and single dashes inside, with at least one letter")
    return value


Integer = Annotated[int, BeforeValidator(_integral)]
PortNumber = Annotated[Integer, Field(ge=1, le=65535)]
PortName = Annotated[str, AfterValidator(_port_name)]
PortReference = Annotated[int | str, PlainValidator(_port_reference, json_schema_input_type=int | str)]
Image = Annotated[str, _matches(_IMAGE, "an image reference such as registry.example.com/team/store:1.2")]
DNSSubdomain = Annotated[
    str, Field(max_length=253), _matches(_DNS_SUBDOMAIN, "a name of a-z, 0-9, dashes and dots (DNS-1123 subdomain)")
]
LabelKey = Annotated[str, AfterValidator(_qualified_key)]
LabelValue = Annotated[
    str,
    _matches(re.compile(rf"({_QUALIFIED.pattern})?"), "up to 63 of letters, digits, '-', '_' and '.' inside"),
]
EnvName = Annotated[str, _matches(re.compile(r"[ -<>-~]+"), "printable ASCII characters other than '=', at least one")]
Count = Annotated[Integer, Field(ge=1, le=3600)]


class Model(BaseModel):
    """Base of all parts: frozen, camelCase outside, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Port(Model):
    """A port that each replica listens on."""

    name: PortName = Field(description="name by which a probe or a client refers to it")
    port: PortNumber = Field(description="number, 1 to 65535")
    protocol: Literal["TCP", "UDP", "SCTP"] = Field(default="TCP", description="transport protocol")


class ResourceRequirements(Model):
    """What each replica asks for (requests) and may use at most (limits)."""

    requests: dict[LabelKey, Quantity] = Field(default_factory=dict, description="resource name -> quantity")
    limits: dict[LabelKey, Quantity] = Field(default_factory=dict, description="resource name -> quantity")

    @model_validator(mode="after")
    def _limits_hold_requests(self) -> Self:
        for name, request in self.requests.items():
            limit = self.limits.get(name)
            if limit is not None and parse_quantity(limit) < parse_quantity(request):
                raise ValueError(f"a limit of {name} that is at least its request ({request}), not {limit}")
            # Extended resources (GPUs) cannot be overcommitted: request and limit must be equal.
            if "/" in name and limit is None:
                raise ValueError(f"a limit of {name} as well: extended resources need one")
            if "/" in name and limit is not None and parse_quantity(limit) != parse_quantity(request):
                raise ValueError(f"a limit of {name} equal to its request ({request}), not {limit}")
        return self


class SecretKeyRef(Model):
    """One key of a Secret in the service's namespace."""

    name: DNSSubdomain = Field(description="name of the Secret")
    key: str = Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$", description="key in it")


class EnvFrom(Model):
    """An environment variable whose value stands elsewhere."""

    secret_key_ref: SecretKeyRef = Field(description="a key of an existing Secret")


EnvValue = Annotated[
    Annotated[str, Tag("text")] | Annotated[EnvFrom, Tag("reference")],
    Discriminator(_env_kind),
]


class HTTPGetAction(Model):
    """A GET request; any status from 200 to 399 is success."""

    port: PortReference = Field(description="name or number of a declared port")
    path: str = Field(default="/", pattern="^/", description="path of the request")
    scheme: Literal["HTTP", "HTTPS"] = Field(default="HTTP", description="scheme of the request")


class TCPSocketAction(Model):
    """A connection that is accepted is success."""

    port: PortReference = Field(description="name or number of a declared port")


class ExecAction(Model):
    """A command in the container; exit code 0 is success."""

    command: tuple[str, ...] = Field(min_length=1, description="program and arguments, not a shell line")


class Probe(Model):
    """A check that kubelet runs in or against each replica: exactly one action."""

    http_get: HTTPGetAction | None = Field(default=None, description="HTTP request")
    tcp_socket: TCPSocketAction | None = Field(default=None, description="TCP connection")
    exec: ExecAction | None = Field(default=None, description="command")
    initial_delay_seconds: Annotated[Integer, Field(ge=0, le=3600)] = Field(
        default=0, description="seconds before the first"
    )
    period_seconds: Count = Field(default=10, description="seconds from one to the next")
    timeout_seconds: Count = Field(default=1, description="seconds after which one has failed")
    failure_threshold: Count = Field(default=3, description="failures in a row that count")
    success_threshold: Count = Field(default=1, description="successes in a row that count")

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        if sum(action is not None for action in (self.http_get, self.tcp_socket, self.exec)) != 1:
            raise ValueError("exactly one of httpGet, tcpSocket and exec")
        return self

    @property
    def port(self) -> int | str | None:
        """The port it refers to, if it does."""
        action = self.http_get or self.tcp_socket
        return action.port if action else None


class Toleration(Model):
    """Lets the pods run on nodes with a matching taint."""

    key: LabelKey | None = Field(default=None, description="taint's key; none matches all with operator Exists")
    operator: Literal["Exists", "Equal"] = Field(default="Equal", description="how the value is compared")
    value: LabelValue = Field(default="", description="taint's value")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="taint's effect; none matches all"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError("no value with operator Exists")
        if self.key is None and self.operator != "Exists":
            raise ValueError("operator Exists when there is no key")
        return self


class DataServiceSpec(Model):
    """One data service: replicas of one container behind a headless Service.

    Example:
        >>> DataServiceSpec(image="localhost/store:1", ports=[Port(name="grpc", port=9000)], replicas=3).replicas
        3
    """

    image: Image = Field(description="container image")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="when kubelet pulls; Kubernetes' own default when none"
    )
    image_pull_secrets: tuple[DNSSubdomain, ...] = Field(default=(), description="names of Secrets with credentials")
    command: tuple[str, ...] = Field(default=(), description="replaces the image's entry point")
    args: tuple[str, ...] = Field(default=(), description="replaces the image's arguments")
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="environment variables")
    ports: tuple[Port, ...] = Field(min_length=1, max_length=64, description="named ports of each replica")
    replicas: Annotated[Integer, Field(ge=0, le=10_000)] = Field(
        default=1, description="number of replicas (shards); 0 pauses the service"
    )
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="requests and limits of each replica"
    )
    readiness_probe: Probe | None = Field(
        default=None, description="decides when a replica is ready; a TCP connection to the first port when none"
    )
    liveness_probe: Probe | None = Field(default=None, description="restarts a replica that fails it")
    startup_probe: Probe | None = Field(default=None, description="holds the other probes back until it succeeds")
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="labels a node must have")
    tolerations: tuple[Toleration, ...] = Field(default=(), description="taints that are tolerated")
    service_account: DNSSubdomain | None = Field(default=None, description="service account of the pods")
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="more labels of all objects")
    annotations: dict[LabelKey, str] = Field(default_factory=dict, description="more annotations of all objects")
    pod_management_policy: Literal["Parallel", "OrderedReady"] = Field(
        default="Parallel", description="start all replicas at once, or one after another"
    )
    termination_grace_period_seconds: Annotated[Integer, Field(ge=0, le=3600)] = Field(
        default=30, description="seconds between SIGTERM and SIGKILL of a replica"
    )
    start_deadline: Duration = Field(default=1800, description="time for all replicas to be ready, else it has failed")
    ttl: Duration | None = Field(default=None, description="lifetime, after which it is destroyed; none: its owner's")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [port.name for port in self.ports]
        if len(set(names)) != len(names):
            raise ValueError("ports: names that differ from each other")
        numbers = [(port.port, port.protocol) for port in self.ports]
        if len(set(numbers)) != len(numbers):
            raise ValueError("ports: numbers that differ from each other within a protocol")
        declared = {*names, *(port.port for port in self.ports if port.protocol == "TCP")}
        for field in ("readiness_probe", "liveness_probe", "startup_probe"):
            probe: Probe | None = getattr(self, field)
            if probe is None:
                continue
            if probe.port is not None and probe.port not in declared:
                known = ", ".join(names)
                raise ValueError(f"{to_camel(field)}: a declared port ({known}), not {probe.port!r}")
            if field != "readiness_probe" and probe.success_threshold != 1:
                raise ValueError(f"{to_camel(field)}.successThreshold: 1, Kubernetes accepts no other")
        return self

    def document(self) -> dict[str, Any]:
        """The specification as plain data, without what has its default value."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def canonical_json(self) -> str:
        """The one way to write this specification: equal values give equal text."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def digest(self) -> str:
        """A hash of the canonical JSON: 16 hexadecimal digits."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]
