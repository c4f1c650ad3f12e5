"""Changes to a stack's record: under the lock, whole or not at all, and never to another stack."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provisioner.engine.location import locate
from provisioner.engine.state import STACKS, history_folder, lock_folder
from provisioner.engine.store import Store, disk_full
from provisioner.errors import PermanentError, ProvisionerError, TransientError

if TYPE_CHECKING:
    from conftest import Backend


def test_a_lock_is_taken_and_given_back(backend: Backend) -> None:
    with backend.records.lock("a"):
        (lock,) = backend.state.locks("a")
        assert lock.pid == os.getpid()
        with pytest.raises(TransientError, match="stack a is locked by process") as caught, backend.records.lock("a"):
            pytest.fail("two hold the lock")
        assert caught.value.reason == "StackLocked"
        with backend.records.lock("b"):
            pass
    assert backend.state.locks("a") == []


def test_a_lock_is_given_back_after_an_error(backend: Backend) -> None:
    with pytest.raises(ValueError, match="x"), backend.records.lock("a"):
        raise ValueError("x")
    assert backend.state.locks("a") == []


def test_never_two_hold_a_lock(backend: Backend) -> None:
    inside, most = 0, 0
    counter = threading.Lock()
    barrier = threading.Barrier(6)

    def work() -> None:
        nonlocal inside, most
        barrier.wait()
        for _ in range(20):
            try:
                with backend.records.lock("a"):
                    with counter:
                        inside += 1
                        most = max(most, inside)
                    with counter:
                        inside -= 1
            except TransientError:
                continue

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 1
    assert backend.state.locks("a") == []


def test_only_that_very_lock_is_cleared(backend: Backend) -> None:
    backend.lock("a", pid=1)
    backend.lock("a", pid=2)
    first, second = backend.state.locks("a")
    backend.records.unlock(first)
    assert backend.state.locks("a") == [second]
    backend.records.unlock(first)


def test_the_engines_backup_comes_first(backend: Backend) -> None:
    backend.put(f"{STACKS}/a.json", "{")
    newest = backend.stack("a", suffix=".bak", resources=[])
    backend.stack("a", suffix=".last")
    assert backend.records.restore("a")
    assert (backend.root / STACKS / "a.json").read_bytes() == newest.read_bytes()


def test_a_damaged_backup_is_passed_over(backend: Backend) -> None:
    backend.put(f"{STACKS}/a.json", "")
    backend.put(f"{STACKS}/a.json.bak", "{")
    kept = backend.stack("a", suffix=".last")
    assert backend.records.restore("a")
    assert (backend.root / STACKS / "a.json").read_bytes() == kept.read_bytes()


def test_without_a_backup_nothing_is_changed(backend: Backend) -> None:
    damaged = backend.put(f"{STACKS}/a.json", "{")
    assert not backend.records.restore("a")
    assert damaged.read_text() == "{"


def test_nothing_is_restored_while_somebody_works(backend: Backend) -> None:
    backend.put(f"{STACKS}/a.json", "{")
    backend.stack("a", suffix=".bak")
    backend.lock("a")
    with pytest.raises(TransientError, match="is locked by"):
        backend.records.restore("a")


def test_forgetting_leaves_nothing_and_nobody_else_alone(backend: Backend) -> None:
    for name in ("a", "ab"):
        backend.stack(name)
        for suffix in (".bak", ".last", ".18b2f.tmp"):
            backend.stack(name, suffix=suffix)
        backend.put(f"{history_folder(name)}/{name}-1.history.json", "")
    before = {path for path in backend.files() if "ab" in path}
    backend.records.forget("a")
    assert {path for path in backend.files() if "ab" in path} == before
    assert not [path for path in backend.files() if path.split("/")[-1].split(".")[0] == "a"]


def test_tidying_spares_a_stack_that_exists(backend: Backend) -> None:
    backend.stack("a")
    backend.stack("a", suffix=".bak")
    before = backend.files()
    backend.records.tidy("a")
    assert backend.files() == before


def test_tidying_leaves_a_stack_that_is_being_made_alone(backend: Backend) -> None:
    backend.stack("a", suffix=".bak")
    backend.lock("a")
    before = backend.files()
    backend.records.tidy("a")
    assert backend.files() == before


def test_tidying_after_a_destroy_leaves_nothing(backend: Backend) -> None:
    backend.stack("a", suffix=".bak")
    backend.put(f"{history_folder('a')}/a-1.history.json", "")
    (backend.root / lock_folder("a")).mkdir(parents=True)
    backend.records.tidy("a")
    assert not [path for path in backend.files() if path.split("/")[-1].split(".")[0] == "a"]


def test_history_is_bounded(backend: Backend) -> None:
    for time in range(101, 111):
        for kind in ("history", "checkpoint"):
            backend.put(f"{history_folder('a')}/a-{time}.{kind}.json", "")
    backend.records.prune_history("a", keep=2)
    left = sorted(path.name for path in (backend.root / history_folder("a")).iterdir())
    assert left == [
        "a-109.checkpoint.json",
        "a-109.history.json",
        "a-110.checkpoint.json",
        "a-110.history.json",
    ]


def test_an_edit_is_made_under_the_lock(backend: Backend) -> None:
    path = backend.stack("a")
    seen: list[int] = []

    def change(_: object) -> bytes:
        seen.append(len(backend.state.locks("a")))
        return b"new"

    backend.records.edit("a", change)
    assert seen == [1]
    assert path.read_bytes() == b"new"
    assert backend.state.locks("a") == []


def test_a_nearly_full_disk_is_refused(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.stack("a")
    backend.records.require_space()
    monkeypatch.setattr("provisioner.engine.store._LEAST_SPACE", 1 << 60)
    with pytest.raises(TransientError) as caught:
        backend.records.require_space()
    assert caught.value.reason == "DiskFull"


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (errno.EROFS, PermanentError, "StatePermissionDenied"),
        (errno.EACCES, PermanentError, "StatePermissionDenied"),
        (errno.ENOSPC, TransientError, "DiskFull"),
        (errno.EDQUOT, TransientError, "DiskFull"),
        (errno.EIO, TransientError, "StateUnavailable"),
        (errno.ESTALE, TransientError, "StateUnavailable"),
    ],
)
def test_what_a_disk_says(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[ProvisionerError], reason: str
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("provisioner.engine.store.tempfile.mkstemp", fail)
    with pytest.raises(kind) as caught:
        backend.store.write("x", b"")
    assert caught.value.reason == reason
    assert str(backend.root) in caught.value.message
    assert disk_full("x").hint


def test_a_state_folder_that_is_away_is_not_an_empty_one(tmp_path: Path) -> None:
    folder, aside = tmp_path / "state", tmp_path / "aside"
    location = locate(f"file://{folder}")
    assert location is not None
    store = Store(location)
    # One that was never made is empty.
    assert store.read("a") is None
    store.write("a", b"1")
    assert store.read("b") is None
    folder.rename(aside)
    for look in (
        lambda: store.read("a"),
        lambda: store.exists("a"),
        lambda: store.entries("."),
        lambda: store.write("a", b"2"),
    ):
        with pytest.raises(TransientError, match="not there any more") as caught:
            look()
        assert caught.value.reason == "StateUnavailable"
    assert not folder.exists()
    aside.rename(folder)
    assert store.read("a") == b"1"


def test_a_mount_point_without_its_volume_is_not_an_empty_folder(tmp_path: Path) -> None:
    folder, aside = tmp_path / "state", tmp_path / "aside"
    location = locate(f"file://{folder}")
    assert location is not None
    store = Store(location)
    store.write(".pulumi/meta.yaml", b"version: 1")
    assert store.read("a") is None
    folder.rename(aside)
    # The engine, which has not noticed, writes where the volume was.
    (folder / ".pulumi").mkdir(parents=True)
    (folder / "a").write_bytes(b"2")
    for look in (
        lambda: store.read("a"),
        lambda: store.exists("a"),
        lambda: store.entries("."),
        lambda: store.folders("."),
        lambda: store.write("a", b"3"),
    ):
        with pytest.raises(TransientError, match="is another one"):
            look()
    folder.rename(tmp_path / "below")
    aside.rename(folder)
    assert store.read("a") is None


def test_a_record_is_made_without_a_process(backend: Backend) -> None:
    with backend.records.made("a") as anew:
        assert anew is True
        found = backend.state.checkpoint("a")
        assert found is not None
        assert (found.resources, found.outputs) == ((), {})
        assert len(backend.state.locks("a")) == 1, "nobody else may change it meanwhile"
    assert backend.state.locks("a") == []


def test_a_record_that_is_there_is_left_alone_and_one_that_is_locked_is_refused(backend: Backend) -> None:
    path = backend.stack("a")
    before = path.read_bytes()
    with backend.records.made("a") as anew:
        assert anew is False
    assert path.read_bytes() == before
    backend.lock("b")
    with pytest.raises(TransientError, match="stack b is locked by"), backend.records.made("b"):
        pass
    assert not backend.state.exists("b")
