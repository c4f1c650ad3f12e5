"""The container of a replica: ports, resources, environment and probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from provisioner.spec.base import (
    Count,
    DNSSubdomain,
    Integer,
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


def _env_kind(value: Any) -> str:
    return "reference" if isinstance(value, Mapping | EnvFrom) else "text"


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
