"""The passphrase of the stacks' secrets: from a setting, or from a file that is made when it is first needed."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from pydantic import SecretStr

from provisioner.errors import PermanentError, UsageError
from provisioner.settings import Settings


def passphrase(settings: Settings) -> SecretStr:
    """The passphrase itself.

    Args:
        settings: Where it stands.

    Raises:
        PermanentError: Its file cannot be made or read.
        UsageError: Its file is empty.
    """
    if settings.passphrase is not None:
        return settings.passphrase
    ensure_passphrase_file(settings.passphrase_file)
    return read_passphrase(settings.passphrase_file)


def read_passphrase(path: Path) -> SecretStr:
    """The passphrase in a file, as the engine reads it: without the space around it.

    Args:
        path: The file.

    Raises:
        PermanentError: It cannot be read.
    """
    try:
        return SecretStr(path.read_text(encoding="utf-8").strip())
    except OSError as error:
        raise _unavailable(path, error) from error


def ensure_passphrase_file(path: Path) -> None:
    """Make the file with the stacks' passphrase unless it exists; of several processes at once one wins.

    Args:
        path: The file; its folder is made with mode 0700.

    Raises:
        PermanentError: It cannot be made or read.
        UsageError: It is empty.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _create(path, secrets.token_urlsafe(32))
        empty = not path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise _unavailable(path, error) from error
    if empty:
        raise UsageError(
            f"passphrase file {path} is empty",
            reason="PassphraseUnavailable",
            hint="put the passphrase of the existing stacks into it; remove it if there are none",
        )


def _unavailable(path: Path, error: OSError) -> PermanentError:
    return PermanentError(
        f"passphrase file {path}: {error.strerror or error}",
        reason="PassphraseUnavailable",
        hint="name a file that can be read in PROVISIONER_PASSPHRASE_FILE",
    )


def _create(path: Path, content: str) -> None:
    # A link appears with its content or not at all, and never replaces another's.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        Path(temporary).unlink()
