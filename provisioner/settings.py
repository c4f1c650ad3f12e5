"""Settings: typed, bounded, each from one environment variable `PROVISIONER_*`.

The values here are facts about a deployment, not about one service; what
belongs to a service is in `spec`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from provisioner.errors import UsageError

ENV_PREFIX = "PROVISIONER_"


def _xdg(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable, "")
    # The XDG base directory specification: a relative value is to be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / fallback
    return root / "provisioner"


def cache_home() -> Path:
    """The folder for what can be made again: `$XDG_CACHE_HOME/provisioner`."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def state_home() -> Path:
    """The folder for what must survive: `$XDG_STATE_HOME/provisioner`."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def _default_backend() -> str:
    return f"file://{state_home() / 'backend'}"


@dataclass(frozen=True)
class Written:
    """Mark of a setting that is written otherwise than its value is kept.

    Attributes:
        how: How it is written, for people.
        bound: Writes a bound of it.
    """

    how: str
    bound: Callable[[Any], str] = str


# A placeholder of a link's template, as Flyte's log plugins write it: `{{ .namespace }}`.
LINK_PLACEHOLDER = re.compile(r"\{\{\s*\.([A-Za-z]+)\s*\}\}")
LINK_OF_REPLICA = "podName"
LINK_VALUES = frozenset(
    {LINK_OF_REPLICA, "namespace", "service", "stack", "executionProject", "executionDomain", "executionName"}
)


def _links(templates: Any) -> Any:
    if isinstance(templates, str):
        templates = json.loads(templates) if templates.strip() else {}
    if not isinstance(templates, dict) or not all(isinstance(template, str) for template in templates.values()):
        raise ValueError("a JSON object of titles and addresses")
    for title, template in templates.items():
        unknown = sorted({match[1] for match in LINK_PLACEHOLDER.finditer(template)} - LINK_VALUES)
        if unknown or not title.strip():
            what = f"unknown placeholder {unknown[0]} in {title!r}" if unknown else "a link without a title"
            raise ValueError(f"{what}; known are {', '.join(sorted(LINK_VALUES))}")
    return templates


Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]
Port = Annotated[int, Field(ge=0, le=65535)]


def _split(value: object) -> object:
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """All settings of the provisioner.

    Example:
        >>> Settings(workers=4).workers
        4
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    backend: str = Field(
        default_factory=_default_backend,
        description="URL of the Pulumi state backend: file://, s3://, gs://, azblob:// or https://",
    )
    passphrase: SecretStr | None = Field(
        default=None, description="passphrase of the stacks' secrets; else the one in passphrase_file"
    )
    passphrase_file: Path = Field(
        default_factory=lambda: state_home() / "passphrase",
        description="file with the passphrase; made with mode 0600 when it does not exist",
    )
    kubeconfig: Path | None = Field(
        default=None, description="kubeconfig file; else $KUBECONFIG, ~/.kube/config or the pod's service account"
    )
    context: str | None = Field(default=None, description="context in the kubeconfig; else its current one")
    namespace: str = Field(default="default", description="namespace of a service that names none", min_length=1)
    project: str = Field(
        default="flytesnacks", description="Flyte project of a service that names none", min_length=1, max_length=63
    )
    domain: str = Field(
        default="development", description="Flyte domain of a service that names none", min_length=1, max_length=63
    )
    workers: int = Field(
        default_factory=lambda: max(2, min(8, (os.cpu_count() or 2) * 2)),
        ge=1,
        le=64,
        description="engine operations that run at once",
    )
    namespaces: Names = Field(
        default=(),
        description="namespaces that are watched, comma-separated; all when empty, which needs a ClusterRole",
    )
    stalled_after: int = Field(
        default=8, ge=1, le=1000, description="failures in a row from which an operation counts as stalled"
    )
    graces: str = Field(
        default="",
        description="REASON=DURATION, comma-separated: for how long a cause may last before the service has failed; "
        "REASON=never leaves that to the start deadline",
    )
    operation_timeout: Seconds = Field(
        default=300.0, description="seconds after which one engine operation is cancelled"
    )
    cancel_grace: Seconds = Field(default=20.0, description="seconds between a graceful and a hard cancel")
    heartbeat: Seconds = Field(
        default=60.0,
        description="seconds after which a server that gives no sign of life counts as dead, so that the others clear "
        "its locks; at least three times cancel_grace",
    )
    heartbeat_namespace: str = Field(
        default="", description="namespace of the servers' Leases, their signs of life; else the setting `namespace`"
    )
    access: Path | None = Field(
        default=None, description="YAML or JSON file with what each project and domain may have; else all they ask for"
    )
    user_lease: int = Field(
        default=3 * 24 * 3600,
        ge=60,
        le=30 * 24 * 3600,
        description="seconds after which a user of a shared service counts no more who neither released it nor ended",
    )
    host: str = Field(default="0.0.0.0", description="address that `serve` listens on")  # noqa: S104
    port: Port = Field(default=8000, description="gRPC port of `serve`; 0 chooses a free one")
    metrics_port: Port = Field(default=9090, description="Prometheus port of `serve`; 0 chooses a free one")
    tls_cert: Path | None = Field(default=None, description="certificate chain of the gRPC port of `serve`, PEM")
    tls_key: Path | None = Field(default=None, description="key of that certificate, PEM, not encrypted")
    tls_client_ca: Path | None = Field(
        default=None, description="ask callers for a certificate that one of these has signed, PEM"
    )
    token_file: Path | None = Field(
        default=None, description="file with tokens, one a line, of which callers must send one"
    )
    plaintext: bool = Field(default=False, description="serve without TLS on an address that other machines reach")
    drain_timeout: Seconds = Field(
        default=30.0, description="seconds that `serve` gives running operations after SIGTERM"
    )
    log_links: Annotated[dict[str, str], NoDecode, BeforeValidator(_links), Written("JSON")] = Field(
        default={},
        description="links that Flyte shows: title -> address with {{ .namespace }}, {{ .podName }}, ...",
    )
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="console on a terminal, else json"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least level shown")

    @property
    def lease_namespace(self) -> str:
        """Where the servers of one backend have the Leases by which they know of each other."""
        return self.heartbeat_namespace or self.namespace


SETTINGS_FILE = f"{ENV_PREFIX}SETTINGS_FILE"
"""Variable that names a file of settings, a line `PROVISIONER_...=VALUE` for each."""

_OF_OTHERS = (f"{ENV_PREFIX}GC_", "OTEL_")


def parse_file(text: str, source: str) -> dict[str, str]:
    """The variables of a file of settings: a line `NAME=VALUE` for each; a line may be empty or begin with `#`.

    Args:
        text: Its content.
        source: What it is called.

    Raises:
        UsageError: Some lines are none of these, or name what is no setting; all are named.

    Example:
        >>> parse_file("PROVISIONER_WORKERS=4", "settings.env")
        {'PROVISIONER_WORKERS': '4'}
    """
    found, problems = {}, []
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if equals and (name in known or name.startswith(_OF_OTHERS)):
            found[name] = value
        else:
            problems.append(f"line {number}: " + (f"{name} is no setting" if equals else "not NAME=VALUE"))
    if problems:
        raise UsageError(f"{source} is not valid: {'; '.join(problems)}", hint="`provisioner settings` lists all")
    return found


@lru_cache(maxsize=1)
def read_file() -> frozenset[str]:
    """Take the file of settings into this process's environment, once; what stands there already wins.

    So it reaches the settings of every part and every child process.

    Returns:
        The variables that come from it.

    Raises:
        UsageError: It cannot be read, or is not valid.
    """
    name = os.environ.get(SETTINGS_FILE, "")
    if not name:
        return frozenset()
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the settings file {name}: {error}", hint=f"correct {SETTINGS_FILE}") from error
    taken = {key: value for key, value in parse_file(text, name).items() if key not in os.environ}
    os.environ.update(taken)
    return frozenset(taken)


@lru_cache(maxsize=1)
def load() -> Settings:
    """Read the settings from the environment and the file that it may name, once.

    Raises:
        UsageError: A variable has a value that is not accepted; all are named.
    """
    read_file()
    try:
        return Settings()
    except ValidationError as error:
        problems = []
        for item in error.errors():
            name = ENV_PREFIX + "_".join(str(part) for part in item["loc"]).upper()
            problems.append(f"{name}: {item['msg']}")
        raise UsageError(
            "settings are not valid: " + "; ".join(problems),
            hint="correct these environment variables, or unset them for the defaults",
        ) from error
