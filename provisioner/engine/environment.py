"""The environment of the engine's processes: all that they need and nothing else.

A CLI that inherits its server's whole environment behaves differently on every
machine (a user's PULUMI_* variables change its answers) and carries secrets
that are none of its business. So what passes is listed here: how programs and
certificates are found, proxies, and the credentials of clouds and clusters.
Credentials are never copied: the kubeconfig is named by its path, and a context
is chosen by a file of one line that stands before it in KUBECONFIG.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import yaml

from provisioner.errors import UsageError
from provisioner.settings import Settings

PROJECT = "data-service"
"""Name of the Pulumi project that every stack belongs to."""

_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|XDG_\w+"
    r"|(?i:https?_proxy|no_proxy|all_proxy)|SSL_CERT_\w+|REQUESTS_CA_BUNDLE"
    r"|AWS_\w+|GOOGLE_\w+|GCP_\w+|CLOUDSDK_\w+|GCE_\w+|AZURE_\w+|ARM_\w+|VAULT_\w+|PG\w+"
    r"|KUBE\w+|PULUMI_ACCESS_TOKEN"
)
PROVIDER_OPTIONS = {
    # A changed secret is changed in place: to delete it first would leave pods that start just then without it.
    "PULUMI_K8S_ENABLE_SECRET_MUTABLE": "true",
}
"""Variables by which the Kubernetes provider is told how to work, also under plain `pulumi`."""
_FIXED = {
    **PROVIDER_OPTIONS,
    "PULUMI_AUTOMATION_API": "true",
    # The options that carry an inline program and its events are hidden without it.
    "PULUMI_DEBUG_COMMANDS": "true",
    "PULUMI_SKIP_UPDATE_CHECK": "true",
    "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
    # Lists all stacks at every start otherwise.
    "PULUMI_DIY_BACKEND_NO_LEGACY_WARNING": "true",
    # A copy per operation, for ever. The `.bak` beside each checkpoint is written all the same.
    "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    # The salt stands in the checkpoint; the folder that `stack init` wrote it to is gone.
    "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
    # An object of ours is brought to what is wanted, whoever changed it since. Whose it is, is looked at before.
    "PULUMI_K8S_ENABLE_PATCH_FORCE": "true",
    # Every process writes a log file there and looks through all of them.
    "PULUMI_LOG_ROTATION_MAX_AGE_DAYS": "1",
    "PULUMI_LOG_ROTATION_MAX_TOTAL_MB": "2",
}


@dataclass(frozen=True)
class Access:
    """Where the engine's processes find their state, their key and their cluster.

    Attributes:
        home: PULUMI_HOME, with the plugins.
        backend: URL of the state backend.
        passphrase: The passphrase itself, or None.
        passphrase_file: The file that holds it, when there is no passphrase.
        kubeconfig: Value of KUBECONFIG, or None for the process's own default.
    """

    home: Path
    backend: str
    passphrase: str | None
    passphrase_file: Path
    kubeconfig: str | None

    def __repr__(self) -> str:
        return f"Access(home={self.home}, kubeconfig={self.kubeconfig})"


def process_environment(access: Access, inherited: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of one CLI process.

    Args:
        access: Where it finds what it needs.
        inherited: The server's own environment.
    """
    environment = {name: value for name, value in inherited.items() if _PASSED.fullmatch(name)}
    environment |= _FIXED
    environment["PULUMI_HOME"] = str(access.home)
    environment["PULUMI_BACKEND_URL"] = backend_url(access.backend)
    if access.passphrase is not None:
        environment["PULUMI_CONFIG_PASSPHRASE"] = access.passphrase
    else:
        environment["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(access.passphrase_file)
    if access.kubeconfig is not None:
        environment["KUBECONFIG"] = access.kubeconfig
    return environment


def backend_url(url: str) -> str:
    """The URL as the engine gets it: a folder is told to keep no side files (`.attrs`) of its objects.

    Args:
        url: As in the settings.

    Example:
        >>> backend_url("file:///var/state")
        'file:///var/state?metadata=skip'
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme != "file" or "metadata" in query:
        return url
    shown = urlunsplit(parts._replace(query=urlencode(query | {"metadata": "skip"})))
    return shown if shown.startswith("file://") else shown.replace("file:", "file://", 1)


def file_backend(url: str) -> Path | None:
    """The folder that a file backend keeps its state in; None for any other backend.

    Args:
        url: As in the settings; `~` and relative paths are resolved as the
            engine does.
    """
    if not url.startswith("file://"):
        return None
    return Path(url.removeprefix("file://").split("?")[0]).expanduser().absolute()


def kubeconfig_variable(settings: Settings, inherited: Mapping[str, str], folder: Path) -> str | None:
    """The value of KUBECONFIG for the settings' cluster.

    Kubeconfig files are merged, and of `current-context` the first file's
    counts (the rule of client-go's `ClientConfigLoadingRules`): so a context is
    chosen by a file that holds nothing else.

    Args:
        settings: Which kubeconfig and which context.
        inherited: The server's own environment.
        folder: Where the file that chooses the context may be written.

    Returns:
        None when the process's own default is right: `~/.kube/config`, or the
        pod's service account.

    Raises:
        UsageError: The kubeconfig named does not exist.
    """
    named = str(settings.kubeconfig) if settings.kubeconfig is not None else inherited.get("KUBECONFIG") or None
    if settings.kubeconfig is not None and not settings.kubeconfig.is_file():
        raise UsageError(
            f"kubeconfig {settings.kubeconfig} does not exist",
            reason="KubeconfigMissing",
            hint="name an existing file in PROVISIONER_KUBECONFIG",
        )
    if settings.context is None:
        return named
    chooser = folder / "context.yaml"
    chooser.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": settings.context}), encoding="utf-8"
    )
    return os.pathsep.join((str(chooser), named or str(Path.home() / ".kube" / "config")))
