"""What a binary says of itself is read with a limit, and not believed when it says nothing."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.errors import PermanentError
from provisioner.toolchain import pins, probe

ETCD = pins.load().find("etcd")
Make = Callable[[str, str], Path]


def test_version_from_either_stream(executable: Make) -> None:
    assert probe.version_of(executable("out", "echo etcd Version: 3.7.3"), ETCD) == "3.7.3"
    assert probe.version_of(executable("err", "echo etcd Version: 3.7.3 >&2; exit 1"), ETCD) == "3.7.3"


@pytest.mark.parametrize("body", ["exit 1", "echo something else", "kill -9 $$"])
def test_one_that_tells_none_will_not_do(executable: Make, body: str) -> None:
    path = executable("etcd", body)
    assert probe.version_of(path, ETCD) == ""
    with pytest.raises(PermanentError, match="tells no version") as raised:
        probe.demand(path, ETCD)
    assert raised.value.reason == "ToolUnusable"


def test_one_that_hangs_is_given_up(executable: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.5)
    assert probe.version_of(executable("hang", "exec sleep 600"), ETCD) == ""


def test_a_file_that_is_no_program_tells_none(tmp_path: Path) -> None:
    assert probe.version_of(tmp_path / "absent", ETCD) == ""
    (tmp_path / "data").write_bytes(b"\0\1\2")
    (tmp_path / "data").chmod(0o755)
    assert probe.version_of(tmp_path / "data", ETCD) == ""


def test_a_replaced_file_is_asked_again(executable: Make) -> None:
    path = executable("etcd", "echo etcd Version: 3.7.2")
    assert probe.version_of(path, ETCD) == "3.7.2"
    executable("etcd", "echo etcd Version: 3.7.3 # now")
    assert probe.version_of(path, ETCD) == "3.7.3"


@pytest.mark.parametrize("body", ["echo no port", "exit 3", "echo 1; exec sleep 600"])
def test_a_plugin_that_serves_nothing_tells_none(executable: Make, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_S", 2.0)
    assert probe.version_of(executable("plugin", body), pins.load().find("pulumi-resource-kubernetes")) == ""


def test_the_module_version_that_go_left_in_a_binary(tmp_path: Path) -> None:
    pin = pins.load().find("training-operator")
    path = tmp_path / "training-operator"
    path.write_bytes(b"\0go1.26\npath\tx\ndep\tgithub.com/kubeflow/training-operator\tv1.8.1\th1:sum=\n\0")
    assert probe.version_of(path, pin) == "1.8.1"
    path.write_bytes(b"")
    assert probe.version_of(path, pin) == ""


def test_the_first_suitable_one_on_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    for number, version in enumerate(("3.5.0", "3.7.3", "3.7.3")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "etcd").write_text(f"#!/bin/sh\necho etcd Version: {version}\n")
        (folder / "etcd").chmod(0o755)
        folders.append(folder)
    monkeypatch.setenv("PATH", ":".join(map(str, folders)))
    found = probe.search(ETCD)
    assert found == probe.Candidate(folders[1] / "etcd", "3.7.3", "path", "")
    rejected = probe.search(replace(ETCD, version="9.0.0"))
    assert rejected is not None
    assert rejected.path == folders[0] / "etcd"
    assert "is 3.5.0, and 9.0.0 is wanted" in rejected.fault


def test_nothing_stays_running_after_a_plugin_was_asked(executable: Make, tmp_path: Path) -> None:
    path = executable("plugin", f"echo $$ > {tmp_path}/pid; echo not a port; exec sleep 600")
    probe.version_of(path, pins.load().find("pulumi-resource-kubernetes"))
    pid = int((tmp_path / "pid").read_text())
    assert subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode != 0
