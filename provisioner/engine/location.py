"""How fsspec reaches a state backend: the engine's URL, read as the engine reads it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from provisioner.engine.environment import file_backend


@dataclass(frozen=True)
class Location:
    """How fsspec reaches a backend.

    Attributes:
        protocol: fsspec's name of the file system.
        root: Folder or bucket with prefix, without a slash at its end.
        options: For the file system's constructor.
    """

    protocol: str
    root: str
    options: dict[str, Any]


def locate(url: str) -> Location | None:
    """How a backend URL is reached directly.

    The queries are those of Go CDK's URL openers, which the engine uses.

    Args:
        url: As in the settings.

    Returns:
        None for a backend that only the CLI can read (Pulumi Cloud, a database).
    """
    folder = file_backend(url)
    if folder is not None:
        return Location("file", str(folder), {})
    parts = urlsplit(url)
    root = f"{parts.netloc}{parts.path}".rstrip("/")
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "s3":
        return Location("s3", root, _s3_options(query))
    if parts.scheme == "gs":
        return Location("gs", root, _gs_options())
    if parts.scheme == "azblob":
        return Location("abfs", root, _azure_options(query))
    return None


def _true(query: dict[str, str], *names: str) -> bool:
    return any(query.get(name, "").lower() in {"1", "t", "true"} for name in names)


def _s3_options(query: dict[str, str]) -> dict[str, Any]:
    client: dict[str, Any] = {}
    if "region" in query:
        client["region_name"] = query["region"]
    if endpoint := query.get("endpoint"):
        scheme = "http" if _true(query, "disableSSL", "disable_https") else "https"
        client["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    options: dict[str, Any] = {"client_kwargs": client}
    if "profile" in query:
        options["profile"] = query["profile"]
    if _true(query, "s3ForcePathStyle", "use_path_style", "hostname_immutable"):
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options


def _gs_options() -> dict[str, Any]:
    # The engine takes the key itself from GOOGLE_CREDENTIALS; else both find the default credentials.
    key = os.environ.get("GOOGLE_CREDENTIALS", "")
    return {"token": json.loads(key)} if key.lstrip().startswith("{") else {}


def _azure_options(query: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "account_name": query.get("storage_account") or os.environ.get("AZURE_STORAGE_ACCOUNT"),
        "account_key": os.environ.get("AZURE_STORAGE_KEY"),
        "sas_token": os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
        "anon": False,
    }
    return {name: value for name, value in options.items() if value is not None}
