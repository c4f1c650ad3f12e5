"""Where the API server is, and how we prove who we are.

The official client's loaders know every form that a kubeconfig takes (tokens,
certificates, credential plugins, the pod's own service account); what they
lack is added here: they never read a file again once its token has expired,
a credential plugin may hang for ever, and importing them costs a second, so
that is put off until a cluster is really asked.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import urllib3

from provisioner.errors import ProvisionerError, TransientError, UsageError
from provisioner.settings import Settings

# A credential plugin may ask an identity provider over the network; more than this is a hang.
LOAD_SECONDS = 30.0
POOL_SIZE = 32
_IN_CLUSTER = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_HINT = "set PROVISIONER_KUBECONFIG and PROVISIONER_CONTEXT, or KUBECONFIG; `kubectl config get-contexts` lists them"

T = TypeVar("T")


@dataclass(frozen=True)
class Connection:
    """One state of the credentials, and the connections made with them.

    Attributes:
        host: URL of the API server.
        pool: Its connections.
        generation: How often the credentials were read.
        configuration: The official client's configuration; its token may renew itself.
    """

    host: str
    pool: urllib3.PoolManager
    generation: int
    configuration: Any

    def headers(self) -> dict[str, str]:
        """The headers that prove who we are."""
        auth = self.configuration.auth_settings().get("BearerToken")
        return {"Authorization": auth["value"]} if auth and auth["value"] else {}


def _bounded(work: Callable[[], T], what: str) -> T:
    """Run something that may hang, for a bounded time."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            failures.append(error)

    thread = threading.Thread(target=run, name="cluster-credentials", daemon=True)
    thread.start()
    thread.join(LOAD_SECONDS)
    if failures:
        raise failures[0]
    if not results:
        raise TransientError(
            f"{what} took more than {LOAD_SECONDS:.0f} s",
            reason="CredentialsTimeout",
            hint="does the credential plugin of this context wait for an answer? Run `kubectl get --raw /version`",
        )
    return results[0]


def _kubeconfig(settings: Settings) -> str | None:
    """The kubeconfig to read: a path, or several joined as in $KUBECONFIG; None when there is none."""
    if settings.kubeconfig is not None:
        path = settings.kubeconfig.expanduser()
        if not path.is_file():
            raise UsageError(f"kubeconfig {path} does not exist", reason="KubeconfigMissing", hint=_HINT)
        return str(path)
    named = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        if not any(Path(part).expanduser().is_file() for part in named):
            raise UsageError(
                f"none of the files in KUBECONFIG exists: {', '.join(named)}", reason="KubeconfigMissing", hint=_HINT
            )
        return os.pathsep.join(named)
    default = Path.home() / ".kube" / "config"
    return str(default) if default.is_file() else None


def _is_loopback(host: str) -> bool:
    name = urlsplit(host).hostname or ""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _read(settings: Settings) -> Any:
    # The import takes a second and 75 MB: whoever asks no cluster should not pay for it.
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config
    from kubernetes.config.kube_config import load_kube_config

    configuration = Configuration()
    source = _kubeconfig(settings)
    if source is not None:
        load_kube_config(config_file=source, context=settings.context, client_configuration=configuration)
        # Renewal is ours (`Credentials.renew`): the client's own would run the
        # plugin within a request, without a bound, in whichever thread comes first.
        configuration.refresh_api_key_hook = None
    elif all(os.environ.get(name) for name in _IN_CLUSTER):
        if settings.context is not None:
            raise UsageError(
                f"context {settings.context!r} was asked for, but there is no kubeconfig",
                reason="KubeconfigMissing",
                hint=_HINT,
            )
        load_incluster_config(client_configuration=configuration)
    else:
        raise UsageError(
            "no cluster is configured: neither a kubeconfig nor a pod's service account was found",
            reason="KubeconfigMissing",
            hint=_HINT,
        )
    return configuration


def _check_certificates(configuration: Any) -> None:
    # urllib3 would look at them at the first call, and call it a broken connection.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if configuration.ssl_ca_cert:
            context.load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            f"the certificates in the kubeconfig cannot be used: {error}", reason="KubeconfigInvalid", hint=_HINT
        ) from error


def _connect(settings: Settings, generation: int) -> Connection:
    try:
        configuration = _bounded(lambda: _read(settings), "reading the cluster's credentials")
    except ProvisionerError:
        raise
    except ImportError:
        raise
    except Exception as error:
        # ConfigException, yaml.YAMLError, OSError, binascii.Error, TypeError: the loaders check little.
        raise UsageError(
            f"the kubeconfig cannot be used: {type(error).__name__}: {error}", reason="KubeconfigInvalid", hint=_HINT
        ) from error
    from kubernetes.client.rest import RESTClientObject

    configuration.retries = False
    configuration.connection_pool_maxsize = POOL_SIZE
    if _is_loopback(configuration.host):
        configuration.proxy = None  # as Go's clients do; a proxy's own loopback is another machine's
    _check_certificates(configuration)
    pool = RESTClientObject(configuration).pool_manager
    return Connection(configuration.host.rstrip("/"), pool, generation, configuration)


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
            TransientError: A credential plugin did not answer in time.
        """
        with self._lock:
            if self._connection is None:
                self._connection = _connect(self._settings, 1)
            return self._connection

    def renew(self, refused: Connection) -> Connection:
        """Read the credentials again, unless another thread has done so since.

        Args:
            refused: The connection that the server did not accept.
        """
        with self._lock:
            if self._connection is None or self._connection.generation == refused.generation:
                self._connection = _connect(self._settings, refused.generation + 1)
            return self._connection
