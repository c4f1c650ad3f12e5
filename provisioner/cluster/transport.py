"""One HTTP call to the API server: bounded in time, with errors of our own tree.

Answers are decoded as plain JSON. The official client's models are built with
reflection, which makes a list of 3,000 pods cost seconds of CPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError, TimeoutError

from provisioner import __version__
from provisioner.cluster.api import Call
from provisioner.cluster.credentials import Connection, Credentials
from provisioner.cluster.metrics import REQUESTS
from provisioner.cluster.parse import items, mapping, number, text
from provisioner.errors import PermanentError, ProvisionerError, TransientError
from provisioner.settings import Settings

CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
JSON = "application/json"
# RFC 7386: what is named is set, null removes.
MERGE_PATCH = "application/merge-patch+json"
# Server-side apply; JSON is YAML too.
APPLY_PATCH = "application/apply-patch+yaml"
# Metadata alone, made by the API server: enough wherever only existence matters.
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"

_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
# Reasons that a Status gives in its causes; the API server's own names.
_TERMINATING = "NamespaceTerminating"
_UNTRUSTED = "CertificateInvalid"
Query = Mapping[str, str | int]


class ThrottledError(TransientError):
    """The API server asks to be left alone for a while.

    Args:
        message: One sentence.
        seconds: For how long.
    """

    default_reason = "Throttled"

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message, hint="the API server is overloaded; the call is repeated later")
        self.seconds = seconds


class NotFoundError(PermanentError):
    """There is no such object."""

    default_reason = "NotFound"


class ExpiredError(TransientError):
    """A resource version or a continue token is too old: list again."""

    default_reason = "Expired"


def _decode(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _forbidden(call: Call, said: str, status: Mapping[str, Any]) -> ProvisionerError:
    if any(text(cause, "reason") == _TERMINATING for cause in items(mapping(status, "details"), "causes")):
        return TransientError(
            f"namespace {call.namespace} is being deleted", reason=_TERMINATING, hint="wait until it is gone"
        )
    if "exceeded quota" in said:
        return PermanentError(
            f"not allowed to {call}: {said}", reason="QuotaExceeded", hint="free something, or ask for more quota"
        )
    if "system:anonymous" in said:
        return TransientError(
            f"the API server does not know who we are; cannot {call}",
            reason="Unauthorized",
            hint="the credential plugin of this context may have failed; run `kubectl auth whoami`",
        )
    return PermanentError(
        f"not allowed to {call}: {said}",
        reason="Forbidden",
        hint=f"grant verb {call.verb!r} on resource {call.resource.plural!r} of API group {call.resource.group!r}"
        + (f" in namespace {call.namespace!r}" if call.namespace and call.resource.namespaced else " cluster-wide"),
    )


def error_from_status(
    code: int, status: Mapping[str, Any], call: Call, headers: Mapping[str, str] | None = None
) -> ProvisionerError:
    """The error of our tree that stands for an answer of the API server.

    Args:
        code: HTTP status, or the code of a `Status` object within a watch.
        status: The `Status` object, or an empty mapping.
        call: What was asked.
        headers: The answer's headers.
    """
    said = text(status, "message") or f"HTTP {code}"
    reason = text(status, "reason")
    if code == 403:
        return _forbidden(call, said, status)
    if code == 401:
        return TransientError(
            f"the API server does not accept our credentials; cannot {call}",
            reason="Unauthorized",
            hint="renew the token or certificate of this context; it is read again at the next try",
        )
    if code == 404:
        return NotFoundError(f"cannot {call}: {said}")
    if code == 410:
        return ExpiredError(f"cannot {call}: {said}")
    if code == 429:
        wait = (headers or {}).get("Retry-After", "")
        seconds = int(wait) if wait.isdigit() else number(mapping(status, "details"), "retryAfterSeconds", 1)
        return ThrottledError(f"cannot {call}: {said}", float(min(max(seconds, 1), 60)))
    if code in _TRANSIENT:
        return TransientError(f"cannot {call}: {said}", reason=reason or "Unavailable", hint="it is tried again")
    if code == 409 and reason != "AlreadyExists":
        return TransientError(f"cannot {call}: {said}", reason=reason or "Conflict", hint="read it again and retry")
    return PermanentError(f"cannot {call}: {said}", reason=reason or "Refused")


def _plain(error: HTTPError) -> str:
    """What happened, without the objects that urllib3 prints along with it."""
    cause: object = error.__cause__ or (error.args[-1] if error.args else error)
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)


def _connection_error(error: HTTPError, call: Call, host: str) -> ProvisionerError:
    if isinstance(error, SSLError):
        return TransientError(
            f"cannot {call}: no trusted connection to {host}: {_plain(error)}",
            reason=_UNTRUSTED,
            hint="is this the right cluster? Its certificate authority is not the one in the kubeconfig",
        )
    # urllib3 calls a refused connection a timeout, too.
    if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
        return TransientError(
            f"cannot {call}: no answer from {host} in time", reason="Timeout", hint="it is tried again"
        )
    return TransientError(
        f"cannot {call}: no connection to {host}: {_plain(error)}",
        reason="Unreachable",
        hint="is the cluster up, and is the network open between here and there?",
    )


class Transport:
    """Calls to one API server; safe for use by many threads.

    Args:
        settings: Which kubeconfig and context.
        connect_seconds: Longest wait for a connection, in seconds.
        read_seconds: Longest wait for the next piece of an answer, in seconds.
    """

    def __init__(
        self, settings: Settings, *, connect_seconds: float = CONNECT_SECONDS, read_seconds: float = READ_SECONDS
    ) -> None:
        self._credentials = Credentials(settings)
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds

    @property
    def host(self) -> str:
        """URL of the API server."""
        return self._credentials.current().host

    def json(
        self,
        call: Call,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        accept: str = JSON,
        patch: str = MERGE_PATCH,
    ) -> Mapping[str, Any]:
        """Make a call and decode its answer.

        Args:
            call: What to do.
            query: Parameters of the URL.
            body: Document to send.
            accept: Media type of the answer.
            patch: Media type of the document of a patch.

        Raises:
            ProvisionerError: Of the branch that says whether to try again.
        """
        response = self.open(call, query=query, body=body, accept=accept, patch=patch)
        try:
            content = response.read()
        except HTTPError as error:
            raise _connection_error(error, call, self.host) from error
        finally:
            response.release_conn()
        document = _decode(content)
        if not document:
            raise TransientError(
                f"cannot {call}: the answer is not a JSON object: {content[:80]!r}",
                reason="InvalidAnswer",
                hint="is there a proxy or a login page in front of the API server?",
            )
        return document

    def open(
        self,
        call: Call,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        accept: str = JSON,
        read_seconds: float | None = None,
        patch: str = MERGE_PATCH,
    ) -> urllib3.BaseHTTPResponse:
        """Make a call and hand out its answer unread; it must be released or closed.

        Args:
            call: What to do.
            query: Parameters of the URL.
            body: Document to send.
            accept: Media type of the answer.
            read_seconds: Longest wait for the next piece of the answer, in seconds.
            patch: Media type of the document of a patch.

        Raises:
            ProvisionerError: Of the branch that says whether to try again.
        """
        connection = self._credentials.current()
        try:
            response = self._send(connection, call, query, body, accept, read_seconds, patch)
            refused = response.status == 401
        except TransientError as error:
            if error.reason != _UNTRUSTED:
                raise
            refused = True
        if refused:
            # A token expires, an authority is replaced; by now the file or the plugin may hold the new one.
            connection = self._credentials.renew(connection)
            response = self._send(connection, call, query, body, accept, read_seconds, patch)
        if 200 <= response.status < 300:
            return response
        try:
            content = response.read()
        except HTTPError as error:
            raise _connection_error(error, call, connection.host) from error
        finally:
            response.release_conn()
        raise error_from_status(response.status, _decode(content), call, response.headers)

    def _send(
        self,
        connection: Connection,
        call: Call,
        query: Query | None,
        body: Mapping[str, Any] | None,
        accept: str,
        read_seconds: float | None,
        patch: str,
    ) -> urllib3.BaseHTTPResponse:
        method = _METHODS.get(call.verb, "GET")
        headers = {"Accept": accept, "User-Agent": f"data-service-provisioner/{__version__}", **connection.headers()}
        if body is not None:
            headers["Content-Type"] = patch if call.verb == "patch" else JSON
        # A connection that the server closed while it was idle shows only when it is used: once more, then.
        attempts = 2 if method == "GET" else 1
        while True:
            attempts -= 1
            try:
                response = connection.pool.request(
                    method,
                    connection.host + call.path + (f"?{_encode(query)}" if query else ""),
                    body=json.dumps(body).encode() if body is not None else None,
                    headers=headers,
                    preload_content=False,
                    redirect=False,
                    timeout=urllib3.Timeout(connect=self._connect_seconds, read=read_seconds or self._read_seconds),
                )
            except ProtocolError as error:
                if attempts:
                    continue
                REQUESTS.labels(call.verb, call.resource.plural, "error").inc()
                raise _connection_error(error, call, connection.host) from error
            except HTTPError as error:
                REQUESTS.labels(call.verb, call.resource.plural, "error").inc()
                raise _connection_error(error, call, connection.host) from error
            REQUESTS.labels(call.verb, call.resource.plural, str(response.status)).inc()
            return response


def _encode(query: Query) -> str:
    return urlencode({key: str(value) for key, value in query.items()})
