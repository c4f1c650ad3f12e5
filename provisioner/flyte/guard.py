"""Who may call: TLS, certificates of callers, or a token; without any only on this machine, or by choice."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import structlog

from provisioner.certificates import ServerTls, Stamp, server_credentials, stamp_of
from provisioner.errors import PermanentError, UsageError
from provisioner.settings import Settings

log = structlog.get_logger(__name__)

# kubelet's probe can send no token.
_OPEN = ("/grpc.health.v1.Health/",)
_SHORTEST_TOKEN = 16


def credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """Credentials of the gRPC port; None for one without TLS.

    Args:
        settings: Files, address, and whether plain text was chosen.

    Raises:
        UsageError: Neither TLS nor plain text was chosen, or half of a pair is missing.
        PermanentError: A file cannot be read, or is not what it should be.
    """
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if (cert is None) != (key is None):
        raise UsageError("a certificate needs its key", hint="set both PROVISIONER_TLS_CERT and PROVISIONER_TLS_KEY")
    if cert is not None and key is not None:
        if settings.plaintext:
            raise UsageError("plain text and TLS exclude each other", hint="unset PROVISIONER_PLAINTEXT")
        return server_credentials(ServerTls(cert, key, client_ca))
    if client_ca is not None:
        raise UsageError(
            "callers can be asked for a certificate only with TLS",
            hint="set PROVISIONER_TLS_CERT and PROVISIONER_TLS_KEY",
        )
    if not settings.plaintext and not _is_loopback(settings.host):
        raise UsageError(
            f"whoever reaches {settings.host} could create and delete services",
            hint="set PROVISIONER_TLS_CERT and PROVISIONER_TLS_KEY; or `--plaintext`, where the network itself keeps "
            "others out",
        )
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TokenGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Lets through calls that carry one of the tokens of a file, as `authorization: Bearer TOKEN`.

    The file has one token a line, so that a new one can be given out before
    the old one is taken away; it is read again when it changes. Health is
    open to all.

    Args:
        file: The tokens.

    Raises:
        PermanentError: It cannot be read, or holds no token that is long enough.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: Stamp = stamp_of((file,))
        self._tokens = _read(file)

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """GRPC's hook: the handler of a call, or one that refuses it."""
        handler = await continuation(details)
        if handler is None or details.method.startswith(_OPEN) or self._knows(details.invocation_metadata):
            return handler
        log.warning("call refused", method=details.method, reason="Unauthenticated")
        return _refusing(handler)

    def _knows(self, metadata: Any) -> bool:
        given = next((value for name, value in metadata or () if name == "authorization"), "")
        scheme, _, token = (given if isinstance(given, str) else "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        return any(hmac.compare_digest(token.strip().encode(), known) for known in self._current())

    def _current(self) -> tuple[bytes, ...]:
        stamp = stamp_of((self._file,))
        if stamp != self._stamp:
            self._stamp = stamp
            problem = ""
            try:
                self._tokens = _read(self._file)
            except PermanentError as error:
                problem = error.message
            log.info("tokens renewed" if not problem else "tokens not renewed, the old ones stay", problem=problem)
        return self._tokens


def _read(file: Path) -> tuple[bytes, ...]:
    try:
        lines = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise PermanentError(f"cannot read the token file {file}: {error}", reason="TokenUnreadable") from error
    if not lines or any(len(line) < _SHORTEST_TOKEN for line in lines):
        raise PermanentError(
            f"{file} holds no token of {_SHORTEST_TOKEN} characters or more on each line",
            reason="TokenInvalid",
            hint="for example: openssl rand -hex 32",
        )
    return tuple(line.encode() for line in lines)


def _refusing(handler: Any) -> Any:
    async def refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this server wants a token: authorization: Bearer TOKEN")

    async def refuse_stream(_: Any, context: grpc.aio.ServicerContext) -> Any:
        await refuse(_, context)
        yield

    kinds = {
        (False, False): (grpc.unary_unary_rpc_method_handler, refuse),
        (False, True): (grpc.unary_stream_rpc_method_handler, refuse_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, refuse),
        (True, True): (grpc.stream_stream_rpc_method_handler, refuse_stream),
    }
    make, behaviour = kinds[handler.request_streaming, handler.response_streaming]
    return make(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
