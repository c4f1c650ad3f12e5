"""Which cluster is meant, and by what it knows us: a kubeconfig or the pod's own service account, as a value.

Read here rather than by the official client: importing that costs 80 MB and
seconds of CPU in every process, and its loader never reads a token file again,
waits for a hanging credential plugin for ever, carries on without credentials
when the plugin fails, and does not know `proxy-url`. The rules are those of
kubectl (client-go, tools/clientcmd): the first file that sets a value wins,
and relative paths are relative to the file that names them.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from provisioner.errors import UsageError
from provisioner.settings import Settings

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HINT = "set PROVISIONER_KUBECONFIG and PROVISIONER_CONTEXT, or KUBECONFIG; `kubectl config get-contexts` lists them"


@dataclass(frozen=True)
class Plugin:
    """A program that gives credentials (client.authentication.k8s.io).

    Attributes:
        command: The program and its arguments.
        environment: Variables that it gets besides our own.
        version: API version of what is said to it and by it.
        folder: Where it is run.
        cluster: What it is told of the cluster, if it asks for that.
        hint: What to do when it does not exist.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    version: str
    folder: Path
    cluster: Mapping[str, Any] | None = None
    hint: str = ""


@dataclass(frozen=True)
class Access:
    """A cluster, and by what it knows us. Nothing secret is in its repr.

    Attributes:
        server: URL of the API server.
        authority: Its certificate authority, PEM; None for the machine's own ones.
        insecure: Whether its certificate is not looked at.
        server_name: Name in its certificate, if that is another than the host's.
        proxy: URL of the proxy on the way to it, or "".
        token: Bearer token, or "".
        token_file: File that holds the token, and a new one before it expires.
        basic: User name and password, joined by a colon, or "".
        certificate: Our certificate, PEM.
        key: Its key, PEM.
        plugin: Program that gives token or certificate.
        impersonate: Headers that say as whom we act.
    """

    server: str
    authority: bytes | None = None
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    basic: str = field(default="", repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    plugin: Plugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()


def _invalid(where: str, what: str) -> UsageError:
    return UsageError(f"the kubeconfig cannot be used: {where}: {what}", reason="KubeconfigInvalid", hint=_HINT)


@dataclass(frozen=True)
class _Section:
    """A mapping in a kubeconfig, with the file and the place that an error names."""

    values: Mapping[str, Any]
    file: Path
    place: str

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _invalid(f"{self.place}.{key} in {self.file}", f"a text is needed, not {type(value).__name__}")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise _invalid(f"{self.place}.{key} in {self.file}", "true or false is needed")
        return value

    def section(self, key: str) -> _Section | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _invalid(f"{self.place}.{key} in {self.file}", "a mapping is needed")
        return _Section(value, self.file, f"{self.place}.{key}" if self.place else key)

    def entries(self, key: str) -> list[_Section]:
        value = self.values.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise _invalid(f"{self.place}.{key} in {self.file}".lstrip("."), "a list of mappings is needed")
        place = f"{self.place}.{key}" if self.place else key
        return [_Section(item, self.file, f"{place}[{item.get('name', index)}]") for index, item in enumerate(value)]

    def path(self, key: str) -> Path | None:
        value = self.text(key)
        return self.file.parent / Path(value).expanduser() if value else None

    def content(self, key: str) -> bytes | None:
        """What stands under KEY-data, in base64, or in the file named by KEY."""
        data = self.text(f"{key}-data")
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError) as error:
                raise _invalid(f"{self.place}.{key}-data in {self.file}", "it is not base64") from error
        path = self.path(key)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise _invalid(f"{self.place}.{key} in {self.file}", f"{path}: {error.strerror}") from error


def _document(path: Path) -> _Section:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        # Its own text would quote the line, and a token may stand in it.
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise _invalid(str(path), f"not YAML{line}: {error.problem}") from None
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text in YAML"
        raise _invalid(str(path), str(reason)) from None
    if not isinstance(found, Mapping):
        raise _invalid(str(path), "it is empty" if found is None else "a mapping is needed")
    return _Section(found, path, "")


def _named(files: list[_Section], kind: str, name: str, part: str) -> _Section:
    """The first entry of a name, as kubectl merges files."""
    known = []
    for file in files:
        for entry in file.entries(kind):
            if entry.values.get("name") == name:
                return entry.section(part) or _Section({}, entry.file, f"{entry.place}.{part}")
            known.append(str(entry.values.get("name")))
    what = f"there is no {part} {name!r}"
    raise _invalid(", ".join(str(file.file) for file in files), f"{what}; known: {', '.join(known) or 'none'}")


def _plugin(section: _Section, cluster: _Section) -> Plugin:
    command = section.text("command")
    arguments = section.values.get("args") or []
    if not command or not isinstance(arguments, list):
        raise _invalid(f"{section.place} in {section.file}", "a command and a list of args are needed")
    if "/" in command:
        command = str(section.file.parent / command)
    environment = [(item.text("name"), item.text("value")) for item in section.entries("env")]
    told = None
    if section.flag("provideClusterInfo"):
        told = {key: cluster.values[key] for key in _TOLD if key in cluster.values}
        for extension in cluster.entries("extensions"):
            if extension.values.get("name") == "client.authentication.k8s.io/exec":
                told["config"] = extension.values.get("extension")
    return Plugin(
        (command, *(str(argument) for argument in arguments)),
        tuple(environment),
        section.text("apiVersion") or "client.authentication.k8s.io/v1",
        section.file.parent,
        told,
        section.text("installHint"),
    )


_TOLD = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
)


def _impersonation(user: _Section) -> tuple[tuple[str, str], ...]:
    headers = [
        (header, user.text(key))
        for key, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
        if user.text(key)
    ]
    if user.values.get("as-user-extra"):
        raise _invalid(f"{user.place}.as-user-extra in {user.file}", "it is not supported")
    groups = user.values.get("as-groups") or []
    if not isinstance(groups, list) or len(groups) > 1:
        raise _invalid(f"{user.place}.as-groups in {user.file}", "a list of at most one group is supported")
    return (*headers, *(("Impersonate-Group", str(group)) for group in groups))


def _from_files(paths: list[Path], context_name: str | None) -> Access:
    files = [_document(path) for path in paths]
    current = context_name or next((name for file in files if (name := file.text("current-context"))), "")
    if not current:
        raise _invalid(", ".join(map(str, paths)), "it has no current-context, and none was asked for")
    context = _named(files, "contexts", current, "context")
    cluster = _named(files, "clusters", context.text("cluster"), "cluster")
    user = (
        _named(files, "users", context.text("user"), "user")
        if context.text("user")
        else _Section({}, context.file, "user")
    )
    if user.values.get("auth-provider"):
        raise _invalid(f"{user.place} in {user.file}", "auth-provider is no longer supported; use an exec plugin")
    server = cluster.text("server").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise _invalid(f"{cluster.place}.server in {cluster.file}", "an https:// address is needed")
    plugin = user.section("exec")
    password = user.text("password")
    return Access(
        server,
        authority=cluster.content("certificate-authority"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        basic=f"{user.text('username')}:{password}" if user.text("username") and password else "",
        certificate=user.content("client-certificate"),
        key=user.content("client-key"),
        plugin=_plugin(plugin, cluster) if plugin else None,
        impersonate=_impersonation(user),
    )


def _in_cluster(account: Path) -> Access | None:
    """The service account of the pod that we run in, if we do."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    token, authority = account / "token", account / "ca.crt"
    if not token.is_file() or not authority.is_file():
        raise UsageError(
            f"this pod has no service account: {account} does not hold token and ca.crt",
            reason="KubeconfigMissing",
            hint="set automountServiceAccountToken and serviceAccountName of this pod",
        )
    address = f"[{host}]" if ":" in host else host
    return Access(f"https://{address}:{port}", authority=authority.read_bytes(), token_file=token)


def _files(settings: Settings) -> list[Path]:
    """The kubeconfig files to read; none when there are none."""
    if settings.kubeconfig is not None:
        path = settings.kubeconfig.expanduser()
        if not path.is_file():
            raise UsageError(f"kubeconfig {path} does not exist", reason="KubeconfigMissing", hint=_HINT)
        return [path]
    named = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        found = [path for path in named if path.is_file()]
        if not found:
            said = ", ".join(map(str, named))
            raise UsageError(f"none of the files in KUBECONFIG exists: {said}", reason="KubeconfigMissing", hint=_HINT)
        return found
    default = Path.home() / ".kube" / "config"
    return [default] if default.is_file() else []


def find_access(settings: Settings, account: Path = _SERVICE_ACCOUNT) -> Access:
    """The cluster that is meant: the settings' kubeconfig, $KUBECONFIG, ~/.kube/config, or this pod's account.

    Args:
        settings: Which kubeconfig and context.
        account: Folder of the pod's service account.

    Raises:
        UsageError: There is none, or it is not valid.
    """
    files = _files(settings)
    if files:
        return _from_files(files, settings.context)
    if settings.context is not None:
        raise UsageError(
            f"context {settings.context!r} was asked for, but there is no kubeconfig",
            reason="KubeconfigMissing",
            hint=_HINT,
        )
    access = _in_cluster(account)
    if access is None:
        raise UsageError(
            "no cluster is configured: neither a kubeconfig nor a pod's service account was found",
            reason="KubeconfigMissing",
            hint=_HINT,
        )
    return access
