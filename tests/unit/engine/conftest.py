"""A backend folder with what the engine writes there, without the engine."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from provisioner.engine.location import locate
from provisioner.engine.records import Records
from provisioner.engine.state import STACKS, StateReader, lock_folder
from provisioner.engine.store import Store


def no_process(_arguments: Sequence[str]) -> str:
    raise AssertionError("a self-managed backend is read without a process")


class Backend:
    """A state folder, its reader, and ways to put things into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        location = locate(f"file://{root}")
        assert location is not None
        self.store = Store(location)
        self.state = StateReader(self.store, no_process)
        self.records = Records(self.store, self.state)

    def put(self, path: str, content: str | bytes) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def stack(self, name: str, *, suffix: str = "", **latest: Any) -> Path:
        return self.put(f"{STACKS}/{name}.json{suffix}", json.dumps(checkpoint_document(name, **latest)))

    def lock(self, name: str, **changes: Any) -> Path:
        content = {
            "pid": os.getpid(),
            "username": "somebody",
            "hostname": socket.gethostname(),
            "timestamp": datetime.now(UTC).isoformat(),
        } | changes
        return self.put(f"{lock_folder(name)}/{content['pid']}.json", json.dumps(content))

    def files(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}


def checkpoint_document(name: str, **latest: Any) -> Mapping[str, Any]:
    manifest = {"time": "2026-05-09T07:29:33Z", "magic": "m", "version": "v3.274.1"}
    return {
        "version": 3,
        "checkpoint": {"stack": f"organization/data-service/{name}", "latest": {"manifest": manifest, **latest}},
    }


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend(tmp_path / "state")


@pytest.fixture
def document() -> Callable[..., Mapping[str, Any]]:
    return checkpoint_document
