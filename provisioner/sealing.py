"""Secrets at rest and on the way: sealed with a key of the engine's passphrase.

A specification travels through Flyte's workflow object, stands in the
checkpoint and in its history, and is compared with the one before. None of
these may show a secret, and yet an equal secret must be seen to be equal, or
each repeat would be a change. So a value is encrypted deterministically
(AES-SIV, RFC 5297): the same value for the same variable of the same stack
gives the same text. The stack and the variable are authenticated with it, so a
sealed text that somebody copies into another service does not open there.

The passphrase protects the stacks' secrets already; who has it could read them
from the state anyway.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import SecretStr

from provisioner.errors import PermanentError
from provisioner.passphrase import passphrase
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec
from provisioner.spec.container import EnvSecret

_VERSION = "v1"
# RFC 7914 parameters for interactive use (about 0.1 s, 32 MiB): a passphrase may be one that a person chose.
_COST, _BLOCK, _PARALLEL = 2**15, 8, 1
_SALT = b"data-service-provisioner/sealing/v1"
# Lengths are rounded up to this many bytes, so that a sealed text does not tell a short password from a long one.
_ROUND = 32


@lru_cache(maxsize=4)
def _cipher(passphrase: str) -> AESSIV:
    derived = Scrypt(salt=_SALT, length=64, n=_COST, r=_BLOCK, p=_PARALLEL).derive(passphrase.encode())
    return AESSIV(derived)


class Sealer:
    """Seals and opens the secrets of specifications.

    Args:
        read: Gives the engine's passphrase; called when there is a secret to
            seal or to open, which most services have none of.

    Example:
        >>> sealer = Sealer(lambda: SecretStr("a passphrase"))
        >>> sealer.open("graph", "TOKEN", sealer.seal("graph", "TOKEN", "hunter2"))
        'hunter2'
    """

    def __init__(self, read: Callable[[], SecretStr]) -> None:
        self._read = read

    @classmethod
    def of(cls, settings: Settings) -> Sealer:
        """The sealer of a deployment.

        Args:
            settings: Where its passphrase stands.
        """
        return cls(lambda: passphrase(settings))

    def seal(self, stack: str, variable: str, value: str) -> str:
        """Encrypt one value.

        Args:
            stack: Name of the stack that it is for.
            variable: Name of the variable.
            value: The secret.
        """
        plain = value.encode()
        padded = plain + b"\x80" + b"\0" * (-(len(plain) + 1) % _ROUND)
        sealed = self._aead().encrypt(padded, _context(stack, variable))
        return f"{_VERSION}:{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    def open(self, stack: str, variable: str, sealed: str) -> str:
        """Decrypt one value.

        Args:
            stack: Name of the stack that it was sealed for.
            variable: Name of the variable.
            sealed: What `seal` gave.

        Raises:
            PermanentError: It was sealed with another passphrase, for another
                stack or variable, or it was altered (reason `SecretUnreadable`).
        """
        text = sealed.removeprefix(f"{_VERSION}:")
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            padded = self._aead().decrypt(data, _context(stack, variable))
            return padded.rstrip(b"\0")[:-1].decode()
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise PermanentError(
                f"secret of variable {variable} cannot be opened for stack {stack}",
                reason="SecretUnreadable",
                hint="it was sealed with another passphrase or for another service: give the value itself again",
            ) from error

    def sealed(self, spec: DataServiceSpec, stack: str) -> DataServiceSpec:
        """The specification with each secret sealed; equal to the given one when it has none in clear.

        Args:
            spec: As it was read.
            stack: Name of the stack that it is for.
        """
        in_clear = {
            name: value.secret.get_secret_value()
            for name, value in spec.env.items()
            if isinstance(value, EnvSecret) and value.secret is not None
        }
        if not in_clear:
            return spec
        env = spec.env | {
            name: EnvSecret(sealed=self.seal(stack, name, value)) for name, value in sorted(in_clear.items())
        }
        return spec.model_copy(update={"env": env})

    def opened(self, spec: DataServiceSpec, stack: str) -> dict[str, str]:
        """The secrets of a specification in clear: variable -> value, sorted by name.

        Args:
            spec: With each secret sealed.
            stack: Name of the stack that it is for.

        Raises:
            PermanentError: One cannot be opened (reason `SecretUnreadable`).
        """
        return {
            name: self.open(stack, name, value.sealed)
            for name, value in sorted(spec.env.items())
            if isinstance(value, EnvSecret) and value.sealed is not None
        }

    def _aead(self) -> AESSIV:
        return _cipher(self._read().get_secret_value())


def _context(stack: str, variable: str) -> list[bytes]:
    return [stack.encode(), variable.encode()]
