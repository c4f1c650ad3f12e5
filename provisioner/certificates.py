"""Certificates: read, checked before use, and read again when their files change.

gRPC takes any bytes and fails at the first handshake, with a message that
names no file. So what is read here goes through the `ssl` module first.
"""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from provisioner.errors import PermanentError

log = structlog.get_logger(__name__)

Stamp = tuple[tuple[str, int, int, int], ...]
"""What tells that files have changed: path, inode, size and time of each."""


@dataclass(frozen=True)
class ServerTls:
    """Files of a server's own certificate.

    Attributes:
        cert: Its certificate chain.
        key: The key.
        client_ca: Ask callers for a certificate that these have signed.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are named."""
        return (self.cert, self.key) if self.client_ca is None else (self.cert, self.key, self.client_ca)


def stamp_of(files: tuple[Path, ...]) -> Stamp:
    """A value that differs once any of the files has been replaced; follows symbolic links."""
    found = []
    for path in files:
        try:
            status = path.stat()
        except OSError:
            found.append((str(path), 0, -1, 0))
        else:
            found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PermanentError(
            f"cannot read the certificate file {path}: {error.strerror}", reason="CertificateUnreadable"
        ) from error


def check_ca(path: Path) -> bytes:
    """Read certificates to trust.

    Args:
        path: A file in PEM form.

    Raises:
        PermanentError: It cannot be read, or holds none.
    """
    pem = _read(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise PermanentError(
            f"{path} holds no certificates in PEM form", reason="InvalidCertificate", hint="name the CA's PEM file"
        ) from error
    return pem


def check_pair(cert: Path, key: Path) -> tuple[bytes, bytes]:
    """Read a certificate and its key, checked to belong together.

    Args:
        cert: The certificate chain in PEM form.
        key: Its key in PEM form, not encrypted.

    Raises:
        PermanentError: They cannot be read, or do not belong together.
    """
    pair = _read(cert), _read(key)
    try:
        # With a password given, an encrypted key fails instead of asking on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise PermanentError(
            f"{cert} and {key} are not a certificate and its unencrypted key in PEM form",
            reason="InvalidCertificate",
        ) from error
    return pair


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Credentials for a server's port; a renewed certificate is used from the next connection on.

    Raises:
        PermanentError: A file cannot be read or is not what it should be.
    """

    def configuration() -> grpc.ServerCertificateConfiguration:
        cert, key = check_pair(tls.cert, tls.key)
        roots = check_ca(tls.client_ca) if tls.client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], roots)

    used, lock = stamp_of(tls.files), threading.Lock()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        with lock:
            now = stamp_of(tls.files)
            if now == used:
                return None
            used = now
            try:
                fresh = configuration()
            except PermanentError as error:
                problem = str(error)
            else:
                log.info("certificate renewed", cert=str(tls.cert))
                return fresh
        log.error("certificate not renewed, the old one stays in use", problem=problem)
        return None

    return grpc.dynamic_ssl_server_credentials(configuration(), renewed, tls.client_ca is not None)
