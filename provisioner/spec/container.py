"""The container of a replica: ports, resources, environment and probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, SecretStr, Tag, field_serializer, field_validator

from provisioner.spec.base import (
    WHOLE,
    Broken,
    Count,
    DNSSubdomain,
    LabelKey,
    Model,
    PortName,
    PortNumber,
    PortReference,
)
from provisioner.spec.quantity import Quantity, parse_quantity


class Port(Model):
    """A port that each replica listens on."""

    name: PortName = Field(description="name by which a probe or a client refers to it")
    port: PortNumber = Field(description="number, 1 to 65535")
    protocol: Literal["TCP", "UDP", "SCTP"] = Field(default="TCP", description="transport protocol")


class ResourceRequirements(Model):
    """What each replica asks for (requests) and may use at most (limits)."""

    requests: dict[LabelKey, Quantity] = Field(default_factory=dict, description="resource name -> quantity")
    limits: dict[LabelKey, Quantity] = Field(default_factory=dict, description="resource name -> quantity")

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:  # noqa: ARG002
        """Limits hold requests; extended resources (GPUs) cannot be overcommitted."""
        for name, request in self.requests.items():
            limit = self.limits.get(name)
            if "/" in name and limit is None:
                yield Broken(("limits", name), "given as well: extended resources need a limit equal to their request")
            elif limit is None:
                continue
            elif "/" in name and parse_quantity(limit) != parse_quantity(request):
                yield Broken(("limits", name), f"equal to the request of {request}, not {limit}")
            elif parse_quantity(limit) < parse_quantity(request):
                yield Broken(("limits", name), f"at least the request of {request}, not {limit}")


class SecretKeyRef(Model):
    """One key of a Secret in the service's namespace."""

    name: DNSSubdomain = Field(description="name of the Secret")
    key: str = Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$", description="key in it")


class EnvFrom(Model):
    """An environment variable whose value stands elsewhere."""

    secret_key_ref: SecretKeyRef = Field(description="a key of an existing Secret")


class EnvSecret(Model):
    """A variable whose value is a secret: it is kept in a Kubernetes Secret of the service, and in no other place.

    It is written as `secret`. Before it leaves the process that read it, it is
    sealed (`provisioner.sealing`): what is stored or sent holds `sealed` alone.
    """

    secret: SecretStr | None = Field(default=None, description="the value itself")
    sealed: str | None = Field(
        default=None, pattern=r"^v1:[-_A-Za-z0-9]+$", description="the value as this provisioner sealed it"
    )

    @field_validator("secret")
    @classmethod
    def _possible(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and "\0" in value.get_secret_value():
            raise ValueError("a text without the character NUL, which no variable can hold")
        return value

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:
        """Exactly one form."""
        if not wrong and (self.secret is None) == (self.sealed is None):
            yield Broken((), "exactly one of secret and sealed")

    @field_serializer("secret", when_used="unless-none")
    def _never_in_clear(self, _: SecretStr) -> str:
        raise ValueError("a secret must be sealed before it is written anywhere")


def _env_kind(value: Any) -> str:
    if isinstance(value, EnvSecret) or (isinstance(value, Mapping) and ("secret" in value or "sealed" in value)):
        return "secret"
    return "reference" if isinstance(value, Mapping | EnvFrom) else "text"


EnvValue = Annotated[
    Annotated[str, Tag("text")] | Annotated[EnvFrom, Tag("reference")] | Annotated[EnvSecret, Tag("secret")],
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
    initial_delay_seconds: Annotated[int, Field(ge=0, le=3600), WHOLE] = Field(
        default=0, description="seconds before the first"
    )
    period_seconds: Count = Field(default=10, description="seconds from one to the next")
    timeout_seconds: Count = Field(default=1, description="seconds after which one has failed")
    failure_threshold: Count = Field(default=3, description="failures in a row that count")
    success_threshold: Count = Field(default=1, description="successes in a row that count")

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:
        """Exactly one action."""
        if wrong & {"httpGet", "tcpSocket", "exec"}:
            return
        if sum(action is not None for action in (self.http_get, self.tcp_socket, self.exec)) != 1:
            yield Broken((), "exactly one of httpGet, tcpSocket and exec")

    @property
    def port(self) -> int | str | None:
        """The port it refers to, if it does."""
        action = self.http_get or self.tcp_socket
        return action.port if action else None
