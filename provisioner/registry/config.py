"""Which agents there are and what the operator said about them, as frozen values.

The names are those of Flyte's own configuration (`agent-service` and
`connector-service` of the propeller), so that an operator meets nothing new.
Reading them from a file is in `parse`; nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from provisioner.errors import Problem

DEFAULT_POLL_INTERVAL = 10.0
"""Seconds between two rounds; the propeller's own default."""

METHODS = (
    "CreateTask",
    "GetTask",
    "DeleteTask",
    "GetTaskMetrics",
    "GetTaskLogs",
    "ExecuteTaskSync",
    "GetAgent",
    "ListAgents",
)
"""The methods that a timeout can be set for."""


class NoteKind(StrEnum):
    """What a note is about."""

    UNKNOWN = "unknown"
    """A key that nothing reads, perhaps misspelt."""
    REPEATED = "repeated"
    """An entry that a later one replaces."""
    LOWERED = "lowered"
    """A name that Flyte lower-cases as it stands here."""
    LEFT_OUT = "left out"
    """Something that is not used on purpose."""
    ODD = "odd"
    """Something that is probably not meant."""


@dataclass(frozen=True)
class Note(Problem):
    """Something in a configuration that does not make it unusable.

    Attributes:
        kind: What it is about.
    """

    kind: NoteKind = NoteKind.ODD


@dataclass(frozen=True)
class Tls:
    """Files for a connection to an agent that is not insecure.

    Attributes:
        ca: Certificates to trust; the system's when None.
        cert: Our client certificate, for an agent that asks for one.
        key: The key of `cert`.
        server_name: The name expected in the agent's certificate; the
            endpoint's when "".
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are named."""
        return tuple(path for path in (self.ca, self.cert, self.key) if path is not None)


@dataclass(frozen=True)
class Deployment:
    """One agent deployment: a gRPC endpoint and how to talk to it.

    Attributes:
        id: Its name in the configuration (`agents.<id>`), `defaultAgent`, or
            `<namespace>/<service>` when it was discovered.
        endpoint: A gRPC target, for example `dns:///agent.flyte.svc:8000`.
        insecure: No TLS. False by default for a named agent, as in Flyte.
        service_config: gRPC service config (JSON), or "".
        timeouts: Method -> seconds; 0 means no limit.
        default_timeout: Seconds for methods not in `timeouts`; 0 means no limit.
        tls: Files for TLS.
    """

    id: str
    endpoint: str
    insecure: bool = False
    service_config: str = ""
    timeouts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    default_timeout: float = 0.0
    tls: Tls = Tls()

    def timeout(self, method: str) -> float | None:
        """Seconds that a call of this method may take, or None for no limit.

        Source: the propeller enforces no timeout when neither
        `timeouts.<method>` nor `defaultTimeout` is set, or when it is 0.
        """
        return self.timeouts.get(method, self.default_timeout) or None

    def list_timeout(self, poll_interval: float) -> float:
        """Seconds that one round waits for this agent's metadata.

        An explicit `timeouts.ListAgents` is taken as it is. The default
        timeout is for tasks (100 s is usual) and would hold up every other
        agent's news, so it is cut to the poll interval here.
        """
        explicit = self.timeouts.get("ListAgents")
        return explicit or min(self.default_timeout or poll_interval, poll_interval)


@dataclass(frozen=True)
class RegistryConfig:
    """All that the operator said.

    Attributes:
        source: Where it was read from, for messages.
        default: The default agent, or None.
        agents: The named agents, in the order of the file.
        explicit: Task type -> id of its agent (`agentForTaskTypes`).
        supported: `supportedTaskTypes`: sent to the default agent when nobody
            announces them.
        poll_interval: Seconds, or None when the file does not say.
        notes: What is odd in the file without making it unusable; to be shown.
    """

    source: str
    default: Deployment | None = None
    agents: tuple[Deployment, ...] = ()
    explicit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    supported: tuple[str, ...] = ()
    poll_interval: float | None = None
    notes: tuple[Note, ...] = ()

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """Every deployment in the order in which announcements win.

        Named agents come first, in the order of the file, and the default
        agent last: it is for what no more specific agent serves.
        """
        return self.agents if self.default is None else (*self.agents, self.default)

    def with_discovered(self, found: tuple[Deployment, ...]) -> RegistryConfig:
        """The same with discovered agents after the named ones.

        A discovered agent whose endpoint or id is configured already is left
        out: what the operator wrote down about it holds.
        """
        endpoints = {deployment.endpoint for deployment in self.deployments}
        ids = {deployment.id for deployment in self.deployments}
        new = tuple(item for item in found if item.endpoint not in endpoints and item.id not in ids)
        return replace(self, agents=(*self.agents, *new))
