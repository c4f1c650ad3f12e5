"""From plain data to a `RegistryConfig`, with every mistake named at once.

Defaults and rules are the propeller's (flyteplugins/go/tasks/plugins/webapi,
`agent/config.go` and `connector/config.go`), because the same text must mean
the same on both sides. What the propeller would ignore in silence is kept as a
note here, so that a misspelt key is seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from provisioner.errors import Problem, SpecError
from provisioner.registry.config import METHODS, Deployment, Note, NoteKind, RegistryConfig, Tls
from provisioner.registry.documents import BLOCKS, Sections, read_sections
from provisioner.registry.durations import parse_duration


@dataclass(frozen=True)
class _Names:
    """How one of the two blocks calls its parts, and its default timeout in seconds."""

    default: str
    agents: str
    apps: str
    explicit: str
    default_timeout: float


_NAMES = {
    "agent-service": _Names("defaultAgent", "agents", "agentApps", "agentForTaskTypes", 3.0),
    "connector-service": _Names("defaultConnector", "connectors", "connectorApps", "connectorForTaskTypes", 10.0),
}
_COMMON_KEYS = ("supportedTaskTypes", "pollInterval", "webApi", "resourceConstraints", "logs")
_DEPLOYMENT_KEYS = (
    "endpoint",
    "insecure",
    "defaultServiceConfig",
    "timeouts",
    "defaultTimeout",
    "caFile",
    "certFile",
    "keyFile",
    "serverName",
)
# The watch of the newer plugin looks its timeout up under this name.
_METHOD_ALIASES = {"listconnectors": "ListAgents"} | {name.lower(): name for name in METHODS}
_TRUE, _FALSE = {"true", "t", "1"}, {"false", "f", "0"}


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class _Reader:
    """Collects what is wrong (problems) and what is odd (notes) on the way."""

    folder: Path
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def wrong(self, path: str, value: Any, accepted: str) -> None:
        self.problems.append(Problem(path, _shown(value), accepted))

    def odd(self, kind: NoteKind, path: str, value: Any, text: str) -> None:
        self.notes.append(Note(path, _shown(value), text, kind))

    def pairs(self, value: Any, path: str) -> dict[str, Any]:
        """A mapping, or a list of mappings, as Flyte writes it where the case of keys matters."""
        if value is None:
            return {}
        found: dict[str, Any] = {}
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, Mapping):
                self.wrong(path, value, "must be a mapping, or a list of mappings")
                return {}
            for key, inner in item.items():
                if str(key) in found and found[str(key)] != inner:
                    self.odd(NoteKind.REPEATED, f"{path}.{key}", found[str(key)], "is replaced by a later one")
                found[str(key)] = inner
        return found

    def keys(self, value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any]:
        """A mapping with known keys in any case; the unknown become notes."""
        names = {name.lower(): name for name in known}
        found: dict[str, Any] = {}
        for key, inner in self.pairs(value, path).items():
            name = names.get(key.lower())
            if name is not None:
                found[name] = inner
                continue
            close = get_close_matches(key.lower(), names, n=1)
            advice = f"is not known here; did you mean {names[close[0]]}?" if close else "is not known here and ignored"
            self.odd(NoteKind.UNKNOWN, f"{path}.{key}", "", advice)
        return found

    def text(self, value: Any, path: str) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            self.wrong(path, value, "must be a text")
            return ""
        return value.strip()

    def flag(self, value: Any, path: str, otherwise: bool) -> bool:
        if value is None or isinstance(value, bool):
            return otherwise if value is None else value
        word = str(value).lower()
        if word not in _TRUE | _FALSE:
            self.wrong(path, value, "must be true or false")
        return word in _TRUE

    def duration(self, value: Any, path: str, otherwise: float) -> float:
        if value is None or value == "":
            return otherwise
        if value == 0 and not isinstance(value, bool):
            return 0.0
        if not isinstance(value, str):
            self.wrong(path, value, "must have a unit, such as 10s (Flyte reads a bare number as nanoseconds)")
            return otherwise
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.wrong(path, value, str(error))
            return otherwise
        if seconds < 0:
            self.wrong(path, value, "must not be negative")
        return seconds

    def file(self, value: Any, path: str) -> Path | None:
        name = self.text(value, path)
        if not name:
            return None
        file = self.folder / name
        if not file.is_file():
            self.wrong(path, file, "must be an existing file")
        return file

    def service_config(self, value: Any, path: str) -> str:
        text = self.text(value, path)
        if not text:
            return ""
        try:
            config = json.loads(text)
        except ValueError as error:
            self.wrong(path, text, f"must be JSON: {error}")
            return ""
        if not isinstance(config, dict):
            self.wrong(path, text, "must be a JSON object")
            return ""
        for method in config.get("methodConfig") or []:
            for policy in ("retryPolicy", "hedgingPolicy"):
                # Such a policy would repeat a CreateTask, which must not happen.
                if isinstance(method, dict) and method.pop(policy, None) is not None:
                    self.odd(NoteKind.LEFT_OUT, f"{path}.{policy}", "", "is left out: what is safe is retried anyway")
        return json.dumps(config, sort_keys=True)

    def timeouts(self, value: Any, path: str) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for key, inner in self.pairs(value, path).items():
            method = _METHOD_ALIASES.get(key.lower())
            if method is None:
                self.odd(NoteKind.UNKNOWN, f"{path}.{key}", "", f"is no method; known are {', '.join(METHODS)}")
                continue
            found[method] = self.duration(inner, f"{path}.{key}", 0.0)
        return MappingProxyType(found)

    def deployment(self, value: Any, path: str, name: str, *, insecure: bool, default_timeout: float) -> Deployment:
        keys = self.keys(value, path, _DEPLOYMENT_KEYS)
        endpoint = self.text(keys.get("endpoint"), f"{path}.endpoint")
        if any(character.isspace() or not character.isprintable() for character in endpoint):
            self.wrong(f"{path}.endpoint", repr(endpoint), "must be a gRPC target such as dns:///agent.flyte.svc:8000")
        elif endpoint and ":" not in endpoint:
            self.odd(NoteKind.ODD, f"{path}.endpoint", endpoint, "has no port; gRPC takes 443 then")
        tls = Tls(
            ca=self.file(keys.get("caFile"), f"{path}.caFile"),
            cert=self.file(keys.get("certFile"), f"{path}.certFile"),
            key=self.file(keys.get("keyFile"), f"{path}.keyFile"),
            server_name=self.text(keys.get("serverName"), f"{path}.serverName"),
        )
        if (tls.cert is None) != (tls.key is None):
            self.wrong(path, "", "certFile and keyFile must be given together")
        return Deployment(
            id=name,
            endpoint=endpoint,
            insecure=self.flag(keys.get("insecure"), f"{path}.insecure", insecure),
            service_config=self.service_config(keys.get("defaultServiceConfig"), f"{path}.defaultServiceConfig"),
            timeouts=self.timeouts(keys.get("timeouts"), f"{path}.timeouts"),
            default_timeout=self.duration(keys.get("defaultTimeout"), f"{path}.defaultTimeout", default_timeout),
            tls=tls,
        )


@dataclass
class _Draft:
    """What has been gathered from the blocks so far."""

    default: Deployment | None = None
    agents: dict[str, Deployment] = field(default_factory=dict)
    explicit: dict[str, str] = field(default_factory=dict)
    supported: list[str] = field(default_factory=list)
    poll_interval: float | None = None


def _add(draft: _Draft, block: str, deployment: Deployment) -> str:
    """Add an agent and return the id it got: the two blocks may use one name for two agents."""
    present = draft.agents.get(deployment.id)
    if present is not None and present != deployment:
        deployment = Deployment(**{**vars(deployment), "id": f"{block}/{deployment.id}"})
    draft.agents[deployment.id] = deployment
    return deployment.id


def _block(draft: _Draft, reader: _Reader, block: str, data: Any) -> None:
    names = _NAMES[block]
    known = (names.default, names.agents, names.apps, names.explicit, *_COMMON_KEYS)
    keys = reader.keys(data, block, known)
    ids: dict[str, str] = {}
    for group in (names.agents, names.apps):
        for name, value in reader.pairs(keys.get(group), f"{block}.{group}").items():
            path = f"{block}.{group}.{name}"
            deployment = reader.deployment(value, path, name, insecure=False, default_timeout=0.0)
            if not deployment.endpoint:
                reader.wrong(f"{path}.endpoint", "", "is missing")
                continue
            ids[name] = ids[name.lower()] = _add(draft, block, deployment)
    if keys.get(names.default) is not None:
        default = reader.deployment(
            keys[names.default],
            f"{block}.{names.default}",
            names.default,
            insecure=True,
            default_timeout=names.default_timeout,
        )
        if default.endpoint and draft.default is None:
            draft.default = default
        elif default.endpoint:
            _add(draft, block, default)
    for task_type, value in reader.pairs(keys.get(names.explicit), f"{block}.{names.explicit}").items():
        wanted = reader.text(value, f"{block}.{names.explicit}.{task_type}")
        if isinstance(keys[names.explicit], Mapping) and task_type != task_type.lower():
            advice = (
                f"is read as {task_type.lower()} by Flyte; write a list to keep the case: [{{{task_type}: {value}}}]"
            )
            reader.odd(NoteKind.LOWERED, f"{block}.{names.explicit}.{task_type}", value, advice)
        agent = ids.get(wanted) or ids.get(wanted.lower(), wanted)
        # A dangling name may be a discovered agent's, so it is judged when the table is built.
        draft.explicit.setdefault(task_type, agent)
    supported = keys.get("supportedTaskTypes") or []
    supported = supported.split(",") if isinstance(supported, str) else supported
    if not isinstance(supported, list):
        reader.wrong(f"{block}.supportedTaskTypes", supported, "must be a list of task types")
        supported = []
    draft.supported += [text for item in supported if (text := str(item).strip()) and text not in draft.supported]
    interval = reader.duration(keys.get("pollInterval"), f"{block}.pollInterval", -1.0)
    if interval == 0:
        reader.wrong(f"{block}.pollInterval", keys["pollInterval"], "must be more than 0")
    if interval > 0 and draft.poll_interval is None:
        draft.poll_interval = interval


def parse(sections: Sections) -> RegistryConfig:
    """Make the configuration of what was read.

    Args:
        sections: From `documents.read_sections`.

    Raises:
        SpecError: Something in it is wrong; every such place is named.
    """
    reader, draft = _Reader(sections.folder), _Draft()
    for block in BLOCKS:
        if block in sections.blocks:
            _block(draft, reader, block, sections.blocks[block])
    if reader.problems:
        raise SpecError(reader.problems, source=sections.source)
    return RegistryConfig(
        source=sections.source,
        default=draft.default,
        agents=tuple(draft.agents.values()),
        explicit=MappingProxyType(draft.explicit),
        supported=tuple(draft.supported),
        poll_interval=draft.poll_interval,
        notes=tuple(reader.notes),
    )


def load(path: Path, *, may_be_empty: bool = False) -> RegistryConfig:
    """Read a configuration file, a folder or a ConfigMap.

    Args:
        path: See `documents.read_sections`.
        may_be_empty: Accept one that names no agent (they are discovered).

    Raises:
        UsageError: It cannot be read.
        SpecError: It is not valid, or names no agent.

    Example:
        >>> load(Path("agents.yaml")).default.endpoint  # doctest: +SKIP
        'dns:///flyteagent.flyte.svc.cluster.local:8000'
    """
    config = parse(read_sections(path))
    if not config.deployments and not may_be_empty:
        raise SpecError(
            [Problem("agent-service", "", "must name a defaultAgent or agents (or connector-service its connectors)")],
            source=str(path),
        )
    return config
