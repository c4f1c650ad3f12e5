"""Which backend this is: an id that its objects carry, so that they can be told from those of another one.

Several backends may record services in one cluster (one per team, or that of
somebody who runs `pulumi up` by hand). What one of them does not know is not
for that reason nobody's. A URL is no id, since one backend has many and a
folder's URL is the same on every machine.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from provisioner.engine.location import locate
from provisioner.errors import PermanentError
from provisioner.identity import PREFIX, short_hash
from provisioner.settings import Settings

FOLDER = f".{PREFIX}"
"""Folder in the backend for what is ours and not the engine's."""


def backend_id(settings: Settings) -> str:
    """The id of the settings' backend: 10 characters that do not change.

    For a bucket it follows from its name and where that is known; a folder
    holds it in a file, made at the first call.

    Args:
        settings: Which backend.

    Raises:
        PermanentError: The folder cannot be written.
    """
    location = locate(settings.backend)
    if location is None:
        parts = urlsplit(settings.backend)
        return short_hash(parts.scheme, parts.hostname or "", parts.path.rstrip("/"))
    if location.protocol == "file":
        return _in_folder(Path(location.root) / FOLDER / "id")
    client = location.options.get("client_kwargs", {})
    where = client.get("endpoint_url") or location.options.get("account_name") or ""
    return short_hash(location.protocol, location.root, where)


def _in_folder(path: Path) -> str:
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _create(path, short_hash(secrets.token_hex(16)))
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise PermanentError(
            f"state folder {path.parent.parent}: {error.strerror or error}",
            reason="StatePermissionDenied",
            hint="name a folder that can be written in PROVISIONER_BACKEND",
        ) from error


def _create(path: Path, content: str) -> None:
    # A link appears with its content or not at all, and of several processes at once one wins.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".id.")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(content + "\n")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        Path(temporary).unlink()
