"""A note of what was removed, which every server on the backend sees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provisioner.engine.location import locate
from provisioner.engine.store import Store
from provisioner.engine.tombstones import Tombstones


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Store:
    location = locate(f"file://{tmp_path}")
    assert location is not None
    return Store(location)


def test_a_request_is_withdrawn_by_its_own_removal_and_a_later_one_is_not(store: Store) -> None:
    one, other = Tombstones(store), Tombstones(store)
    assert not other.withdrawn("a", 100.0)
    one.bury("a", 100.125)
    assert other.withdrawn("a", 100.0)
    assert other.withdrawn("a", 100.125)
    assert other.withdrawn("a", 100.1254), "written down, it is the same time"
    assert not other.withdrawn("a", 100.126)
    assert not other.withdrawn("b", 100.0)


def test_an_older_removal_takes_nothing_back(store: Store) -> None:
    notes = Tombstones(store)
    notes.bury("a", 200.0)
    notes.bury("a", 100.0)
    assert notes.withdrawn("a", 150.0)


def test_a_note_that_cannot_be_read_says_nothing(store: Store, tmp_path: Path) -> None:
    notes = Tombstones(store)
    notes.bury("a", 200.0)
    (note,) = tmp_path.rglob("removed/a")
    note.write_bytes(b"20x")
    assert not notes.withdrawn("a", 100.0)
    notes.bury("a", 200.0)
    assert notes.withdrawn("a", 100.0)


def test_old_notes_go_with_a_later_removal(store: Store, tmp_path: Path) -> None:
    clock = Clock()
    notes = Tombstones(store, clock)
    for stack in "ab":
        notes.bury(stack, 1.0)
    (old,) = tmp_path.rglob("removed/a")
    os.utime(old, (old.stat().st_mtime - 4000,) * 2)
    notes.bury("c", 1.0)
    assert old.exists(), "not at every removal"
    clock.now += 601
    notes.bury("d", 1.0)
    assert {path.name for path in old.parent.iterdir()} == {"b", "c", "d"}


def test_where_only_the_cli_reaches_the_backend_nothing_is_noted() -> None:
    notes = Tombstones(None)
    notes.bury("a", 1.0)
    assert not notes.withdrawn("a", 1.0)
