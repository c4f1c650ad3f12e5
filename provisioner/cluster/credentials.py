"""Connections to the API server, renewed when it no longer accepts them.

A token expires, a certificate is replaced, a credential plugin has to be asked
again: each shows as one refused call, after which everything is read anew. So
nothing here guesses at times, except that a token file is looked at each
minute, as kubelet replaces it well before its end.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from provisioner.cluster.kubeconfig import Access, Plugin, find_access
from provisioner.cluster.parse import mapping, text
from provisioner.errors import TransientError, UsageError
from provisioner.settings import Settings

# A plugin may ask an identity provider over the network; more than this is a hang.
PLUGIN_SECONDS = 30.0
TOKEN_FILE_SECONDS = 60.0
POOL_SIZE = 32


@dataclass
class Connection:
    """One state of the credentials, and the connections made with them; safe for use by many threads.

    Attributes:
        access: What it was made from.
        pool: Its connections.
        generation: How often the credentials were read.
    """

    access: Access
    pool: urllib3.PoolManager
    generation: int
    _token: str = field(default="", repr=False)
    _read_at: float = float("-inf")

    @property
    def host(self) -> str:
        """URL of the API server."""
        return self.access.server

    def headers(self) -> dict[str, str]:
        """The headers that prove who we are.

        Raises:
            TransientError: The token file cannot be read.
        """
        headers = dict(self.access.impersonate)
        token = self._current_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif self.access.basic:
            headers |= urllib3.make_headers(basic_auth=self.access.basic)
        return headers

    def _current_token(self) -> str:
        path = self.access.token_file
        if path is None:
            return self.access.token
        if time.monotonic() - self._read_at > TOKEN_FILE_SECONDS:
            try:
                self._token = path.read_text().strip()
            except (OSError, UnicodeError) as error:
                raise TransientError(
                    f"the token file {path} cannot be read: {error}", reason="Unauthorized", hint="restore the file"
                ) from error
            self._read_at = time.monotonic()
        return self._token


def _run(plugin: Plugin) -> Mapping[str, Any]:
    """Run a credential plugin and return the `status` of what it says."""
    name = plugin.command[0]
    spec = {"interactive": False} | ({"cluster": plugin.cluster} if plugin.cluster else {})
    asked = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
    environment = os.environ | dict(plugin.environment) | {"KUBERNETES_EXEC_INFO": json.dumps(asked)}
    try:
        process = subprocess.Popen(
            plugin.command,
            cwd=plugin.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(
            f"credential plugin {name} cannot be run: {error.strerror}",
            reason="CredentialPluginMissing",
            hint=plugin.hint or "install it, or choose another context",
        ) from error
    try:
        said, complaint = process.communicate(timeout=PLUGIN_SECONDS)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise TransientError(
            f"credential plugin {name} took more than {PLUGIN_SECONDS:.0f} s",
            reason="CredentialPluginTimeout",
            hint="does it wait for an answer? Log in with it by hand first",
        ) from error
    last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
    if process.returncode != 0:
        raise TransientError(
            f"credential plugin {name} failed with exit code {process.returncode}: {last or 'it says nothing'}",
            reason="CredentialPluginFailed",
            hint="log in with it by hand; it is asked again at the next try",
        )
    try:
        document = json.loads(said)
    except ValueError:
        document = None
    status = mapping(document, "status")
    if not text(status, "token") and not text(status, "clientCertificateData"):
        raise TransientError(
            f"credential plugin {name} gave neither a token nor a certificate",
            reason="CredentialPluginFailed",
            hint="run it by hand; it should print an ExecCredential",
        )
    return status


def _resolve(access: Access) -> Access:
    """Ask the plugin, if there is one and nothing else says who we are."""
    if access.plugin is None or access.token or access.token_file:
        return access
    status = _run(access.plugin)
    # Longer than what `text` keeps of a message.
    token, certificate, key = (status.get(name) for name in ("token", "clientCertificateData", "clientKeyData"))
    if isinstance(certificate, str) and isinstance(key, str):
        access = replace(access, certificate=certificate.encode(), key=key.encode())
    return replace(access, token=token) if isinstance(token, str) else access


def _tls(access: Access) -> ssl.SSLContext:
    # Not ssl.create_default_context: from Python 3.13 on that refuses authorities
    # without a key identifier, and those of many clusters are such.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if access.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif access.authority is not None:
            context.load_verify_locations(cadata=access.authority.decode("ascii"))
        else:
            context.load_default_certs()
        if access.certificate is not None:
            _load_certificate(context, access.certificate, access.key or b"")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise UsageError(
            f"the certificates for {access.server} cannot be used: {error}",
            reason="KubeconfigInvalid",
            hint="certificate-authority, client-certificate and client-key of a kubeconfig are PEM",
        ) from error
    return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # OpenSSL reads a chain from a file alone; this one is 0600 and lives for a moment.
    with tempfile.NamedTemporaryFile(prefix="provisioner-") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


def _proxy(access: Access) -> str:
    """URL of the proxy on the way, or ""; by the rules of Go's ProxyFromEnvironment."""
    if access.proxy:
        return access.proxy
    parts = urlsplit(access.server)
    host = parts.hostname or ""
    try:
        address = ip_address(host)
        # A proxy's own loopback is another machine's.
        if address.is_loopback or any(address in network for network in _exempt()):
            return ""
    except ValueError:
        if host == "localhost":
            return ""
    return "" if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme, "")


def _exempt() -> list[Any]:
    """The networks in NO_PROXY, which Python itself does not understand."""
    networks = []
    for part in getproxies().get("no", "").split(","):
        try:
            networks.append(ip_network(part.strip(), strict=False))
        except ValueError:
            continue  # a host name: `proxy_bypass` knows those
    return networks


def _connect(settings: Settings, generation: int) -> Connection:
    access = _resolve(find_access(settings))
    options: dict[str, Any] = {"maxsize": POOL_SIZE, "retries": False}
    if access.server.startswith("https"):
        options["ssl_context"] = _tls(access)
        if access.server_name:
            options["server_hostname"] = access.server_name
    proxy = _proxy(access)
    if proxy and not proxy.startswith(("http://", "https://")):
        raise UsageError(
            f"the proxy {proxy} cannot be used: only http:// and https:// are known",
            reason="KubeconfigInvalid",
            hint="correct proxy-url in the kubeconfig, or HTTPS_PROXY",
        )
    pool = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
    return Connection(access, pool, generation)


class Credentials:
    """The connection to one cluster, read when it is first needed and again when the server refuses it.

    Args:
        settings: Which kubeconfig and context.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def current(self) -> Connection:
        """The connection as it is.

        Raises:
            UsageError: No cluster is configured, or its kubeconfig is not valid.
            TransientError: A credential plugin failed.
        """
        with self._lock:
            if self._connection is None:
                self._connection = _connect(self._settings, 1)
            return self._connection

    def renew(self, refused: Connection) -> Connection:
        """Read the credentials again, unless another thread has done so since.

        Args:
            refused: The connection that the server did not accept.

        Raises:
            UsageError: The kubeconfig is no longer valid.
            TransientError: A credential plugin failed.
        """
        with self._lock:
            if self._connection is None or self._connection.generation == refused.generation:
                self._connection = _connect(self._settings, refused.generation + 1)
            return self._connection
