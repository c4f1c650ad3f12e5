"""Credentials for connections to agents."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from provisioner.certificates import check_ca, check_pair
from provisioner.registry.config import Tls


def _system_roots() -> bytes | None:
    """The system's CA bundle, as the propeller uses; gRPC's own list when the system has none."""
    paths = ssl.get_default_verify_paths()
    return Path(paths.cafile).read_bytes() if paths.cafile else None


def client_credentials(tls: Tls) -> grpc.ChannelCredentials:
    """Credentials for a channel to an agent.

    Raises:
        PermanentError: A file cannot be read or is not what it should be.
    """
    roots = check_ca(tls.ca) if tls.ca else _system_roots()
    cert, key = check_pair(tls.cert, tls.key) if tls.cert and tls.key else (None, None)
    return grpc.ssl_channel_credentials(root_certificates=roots, private_key=key, certificate_chain=cert)
