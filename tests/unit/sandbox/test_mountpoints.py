"""Folders lent by the machine: made, marked, kept while in use, removed without a trace."""

import os
import subprocess
from pathlib import Path

import pytest

from provisioner.errors import RefusedError
from provisioner.sandbox import mountpoints
from provisioner.sandbox.mountpoints import MARK, ensure_mountpoints, remove_mountpoints

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the folders are root's")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    paths = [tmp_path / "one", tmp_path / "two"]
    monkeypatch.setattr(mountpoints, "MOUNTPOINTS", {str(path): path.name for path in paths})
    return paths


def test_what_was_made_goes_again(folders: list[Path]) -> None:
    ensure_mountpoints()
    ensure_mountpoints()
    assert all(path.is_dir() for path in folders)
    remove_mountpoints()
    remove_mountpoints()
    assert not any(path.exists() for path in folders)


def test_a_folder_of_the_machine_stays_even_when_it_is_empty(folders: list[Path]) -> None:
    folders[0].mkdir()
    ensure_mountpoints()
    remove_mountpoints()
    assert list(folders[0].iterdir()) == []
    assert not folders[1].exists()


def test_what_somebody_has_put_there_stays(folders: list[Path]) -> None:
    ensure_mountpoints()
    (folders[0] / "theirs").touch()
    remove_mountpoints()
    assert {path.name for path in folders[0].iterdir()} == {"theirs", MARK}
    assert not folders[1].exists()


def test_a_folder_that_another_namespace_has_something_on_stays(folders: list[Path], tmp_path: Path) -> None:
    ensure_mountpoints()
    script = f"mount -t tmpfs tmpfs {folders[0]} && echo there && read line"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "there\n"
        remove_mountpoints()
        assert folders[0].exists()
        assert not folders[1].exists()
        other.communicate("\n")
    remove_mountpoints()
    assert not folders[0].exists()


@pytest.mark.parametrize("kind", ["link", "writable", "foreign", "file"])
def test_a_folder_in_somebody_elses_hands_is_refused(folders: list[Path], tmp_path: Path, kind: str) -> None:
    path = folders[0]
    if kind == "link":
        path.symlink_to(tmp_path)
    elif kind == "file":
        path.touch()
    else:
        path.mkdir()
    if kind == "writable":
        path.chmod(0o777)
    if kind == "foreign":
        os.chown(path, 65534, 65534)
    with pytest.raises(RefusedError) as caught:
        ensure_mountpoints()
    assert str(path) in str(caught.value)
