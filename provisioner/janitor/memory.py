"""What the janitor remembers between two sweeps: one small file per thing that is to go, beside the stacks.

Not in the process, since a CronJob's ends with the sweep; not in the cluster,
since a stack may have nothing there; not in one file for all, since two
janitors would overwrite each other's. The notice on the objects is for people
and is never read back as truth. Losing these files costs a new notice.
"""

from __future__ import annotations

import json
from concurrent.futures import Executor
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from provisioner.engine.location import Location, locate
from provisioner.engine.origin import FOLDER
from provisioner.engine.store import Store
from provisioner.errors import UsageError
from provisioner.identity import short_hash
from provisioner.janitor.facts import Case
from provisioner.settings import state_home

_CASES = f"{FOLDER}/janitor"
_log = structlog.get_logger(__name__)


class Memory:
    """Keeps cases; safe for several threads and processes.

    Args:
        store: Where.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def beside(cls, backend: str, records: str) -> Memory:
        """The memory of the janitor of a backend.

        Args:
            backend: URL of the backend.
            records: URL of another place, or "" for the backend itself. A
                backend that only the engine can read has no room for files of
                ours; then it is a folder of this user.

        Raises:
            UsageError: The other place is none that can be used.
        """
        location = locate(records or backend)
        if location is None and records:
            raise UsageError(
                f"the janitor's notes cannot be kept at {records}",
                hint="name a folder or bucket: file://, s3://, gs:// or azblob://",
            )
        folder = state_home() / "janitor" / short_hash(backend)
        return cls(Store(location or Location("file", str(folder), {})))

    @property
    def place(self) -> str:
        """Where, for messages."""
        return self._store.place(_CASES)

    def cases(self, readers: Executor) -> dict[str, Case]:
        """All that is remembered.

        Args:
            readers: Reads the files.
        """
        names = [entry.name for entry in self._store.entries(_CASES) if entry.name.endswith(".json")]
        found = readers.map(self.case, [name.removesuffix(".json") for name in names])
        return {case.stack: case for case in found if case is not None}

    def case(self, stack: str) -> Case | None:
        """What is remembered of one stack.

        Args:
            stack: Its name.
        """
        content = self._store.read(_path(stack))
        if content is None:
            return None
        try:
            return _parse(stack, json.loads(content))
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("a note of the janitor cannot be read; it begins anew", stack_name=stack, error=str(error))
            return None

    def remember(self, case: Case) -> None:
        """Keep a case, in the place of an earlier one.

        Args:
            case: What is to be remembered.
        """
        document = {key: value for key, value in asdict(case).items() if value not in (None, "", 0, ())}
        self._store.write(_path(case.stack), json.dumps(document, default=_text).encode())

    def forget(self, stack: str) -> None:
        """Drop what is remembered of a stack.

        Args:
            stack: Its name.
        """
        self._store.delete(_path(stack))


def _path(stack: str) -> str:
    return f"{_CASES}/{Path(stack).name}.json"


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def _parse(stack: str, document: dict[str, Any]) -> Case:
    first_seen = datetime.fromisoformat(document["first_seen"])
    retry_at = document.get("retry_at")
    if first_seen.tzinfo is None:
        raise ValueError("a time without its zone")
    return Case(
        stack=stack,
        reason=str(document["reason"]),
        first_seen=first_seen,
        failures=int(document.get("failures", 0)),
        retry_at=datetime.fromisoformat(retry_at) if retry_at else None,
        error_reason=str(document.get("error_reason", "")),
        error=str(document.get("error", "")),
        steps=tuple(str(step) for step in document.get("steps", ())),
    )
