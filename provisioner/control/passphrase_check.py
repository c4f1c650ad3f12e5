"""Whether a passphrase opens a stack's secrets, found out without starting the engine.

The engine puts a known word, encrypted, behind the salt: `v1:SALT:v1:NONCE:DATA`
(Pulumi's passphrase secrets manager: AES-256-GCM, key by PBKDF2 with SHA-256).
"""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from pydantic import SecretStr

from provisioner.engine import Checkpoint

_ROUNDS = 1_000_000
_KEY_BYTES = 32
_WORD = b"pulumi"


def opens(checkpoint: Checkpoint, passphrase: SecretStr) -> bool | None:
    """Whether a passphrase opens the secrets of a stack.

    Args:
        checkpoint: The stack's.
        passphrase: Which is tried.

    Returns:
        None when the stack's secrets are not kept by a passphrase.
    """
    provider = checkpoint.deployment.get("secrets_providers") or {}
    if provider.get("type") != "passphrase":
        return None
    parts = str((provider.get("state") or {}).get("salt", "")).split(":")
    if len(parts) != 5:
        return None
    try:
        salt, nonce, data = (base64.b64decode(part) for part in (parts[1], parts[3], parts[4]))
        key = PBKDF2HMAC(SHA256(), _KEY_BYTES, salt, _ROUNDS).derive(passphrase.get_secret_value().encode())
        return AESGCM(key).decrypt(nonce, data, None) == _WORD
    except (InvalidTag, ValueError, binascii.Error):
        return False
