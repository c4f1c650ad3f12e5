"""Image archives: written so that every tool can read them, read so that a wrong file is named as such.

The archive that is written is an OCI image layout and a Docker archive at
once; both describe the same blobs. Nothing in it depends on the time or place
of its making.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.errors import UsageError
from provisioner.sandbox.images.layer import EPOCH, Layer, Store
from provisioner.sandbox.images.reference import full_name

_OCI = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_NAME_ANNOTATION = "io.containerd.image.name"
_TAG_ANNOTATION = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class ImageConfig:
    """How a container of the image starts.

    Attributes:
        command: What runs when the pod names nothing.
        environment: Variables, as `NAME=value`.
    """

    command: tuple[str, ...]
    environment: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)


@dataclass(frozen=True)
class _Blob:
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def descriptor(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{self.digest}", "size": len(self.content), **more}


def _blob(value: Any) -> _Blob:
    return _Blob(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(content), EPOCH, 0o644
    tar.addfile(info, io.BytesIO(content))


def write_archive(name: str, layers: list[Layer], config: ImageConfig, store: Store, folder: Path) -> Path:
    """Write an image to a file named after its content; nothing is done when it is there.

    Args:
        name: The image's name, for example `localhost/python:sandbox`.
        layers: From the lowest up.
        config: How it starts.
        store: Where the layers are.
        folder: Where the file goes; an older one of the same name is removed.

    Returns:
        The path of the archive.
    """
    full = full_name(name)
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    settings = _blob(
        {
            "architecture": architecture,
            "os": "linux",
            "created": "1980-01-01T00:00:00Z",
            "config": {"Env": list(config.environment), "Cmd": list(config.command), "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
        }
    )
    described = [
        {"mediaType": f"{_OCI}.layer.v1.tar", "digest": f"sha256:{layer.digest}", "size": layer.size}
        for layer in layers
    ]
    manifest = _blob(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": settings.descriptor("config.v1+json"),
            "layers": described,
        }
    )
    slug = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in full)
    path = folder / f"{slug}-{manifest.digest[:16]}.tar"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    annotations = {_NAME_ANNOTATION: full, _TAG_ANNOTATION: full.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [manifest.descriptor("manifest.v1+json", annotations=annotations)]}
    files = [f"blobs/sha256/{layer.digest}" for layer in layers]
    docker = [{"Config": f"blobs/sha256/{settings.digest}", "RepoTags": [full], "Layers": files}]
    fresh = path.with_suffix(".new")
    with tarfile.open(fresh, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", _blob(index).content)
        _add(tar, "manifest.json", _blob(docker).content)
        for blob in (manifest, settings):
            _add(tar, f"blobs/sha256/{blob.digest}", blob.content)
        for layer in {layer.digest: layer for layer in layers}.values():
            info = tarfile.TarInfo(f"blobs/sha256/{layer.digest}")
            info.size, info.mtime, info.mode = layer.size, EPOCH, 0o644
            with store.blob(layer.digest).open("rb") as content:
                tar.addfile(info, content)
    fresh.replace(path)
    for older in folder.glob(f"{slug}-{'?' * 16}.tar"):
        if older != path:
            older.unlink(missing_ok=True)
    return path


def image_names(path: Path) -> list[str]:
    """The full names of the images in an archive.

    Args:
        path: A Docker archive or a tar of an OCI image layout, plain or gzipped.

    Returns:
        At least one name.

    Raises:
        UsageError: The file is not there, is neither, or names no image.
    """
    hint = "give a file made by `docker save NAME`, `provisioner sandbox image`, or a tar of an OCI image layout"
    if not path.is_file():
        raise UsageError(f"there is no file {path}", reason="NoSuchFile", hint=hint)
    try:
        documents = _documents(path)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise UsageError(f"{path} is not an image archive: {error}", reason="NotAnImage", hint=hint) from error
    if not documents:
        raise UsageError(
            f"{path} is not an image archive: it has neither manifest.json nor index.json",
            reason="NotAnImage",
            hint=hint,
        )
    names: list[str] = []
    try:
        for item in documents.get("index.json", {}).get("manifests", []):
            names.append(item.get("annotations", {}).get(_NAME_ANNOTATION, ""))
        for item in documents.get("manifest.json", []):
            names += item.get("RepoTags") or []
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{path} is not an image archive: {error}", reason="NotAnImage", hint=hint) from error
    full = list(dict.fromkeys(full_name(name) for name in names if name))
    if not full:
        raise UsageError(
            f"{path} names no image, so no pod could use it",
            reason="NamelessImage",
            hint="save the image by its name and tag, not by its id",
        )
    return full


def _documents(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tarfile.open(path, mode="r:*") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if name in ("manifest.json", "index.json") and member.isfile():
                stream = tar.extractfile(member)
                found[name] = json.load(stream) if stream else None
                if len(found) == 2:
                    break
    return found
