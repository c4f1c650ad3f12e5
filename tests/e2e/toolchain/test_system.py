"""The toolchain of this very machine: everything there, each binary what it claims to be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner import settings, toolchain
from provisioner.toolchain import Group, debian, pins, probe
from provisioner.toolchain.lock import exclusive
from provisioner.toolchain.pins import Package
from provisioner.toolchain.work import Work


def test_status_shows_every_binary_usable() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "provisioner", "toolchain", "status", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["state"] for row in rows} == {"ok"}
    assert all(Path(row["path"]).exists() and row["size"] > 0 for row in rows)


@pytest.mark.parametrize("name", [pin.name for pin in pins.load().select([Group.ENGINE, Group.SANDBOX])])
def test_a_located_binary_tells_the_version_that_was_recorded(name: str) -> None:
    binary, pin = toolchain.locate(name), pins.load().find(name)
    assert probe.version_of(binary.path, pin) == binary.version


def test_the_plain_pulumi_command_works_in_the_printed_environment(tmp_path: Path) -> None:
    lines = subprocess.run(
        [sys.executable, "-m", "provisioner", "toolchain", "env"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    script = f"{lines}\ncommand -v pulumi; pulumi version; pulumi plugin ls --json"
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true", "PULUMI_BACKEND_URL": f"file://{tmp_path}"}
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path, env=environment
    )
    path, version, plugins = done.stdout.split("\n", 2)
    assert path == str(toolchain.locate("pulumi").path)
    assert version == f"v{toolchain.locate('pulumi').version}"
    assert {("kubernetes", "4.25.0")} <= {(item["name"], item["version"]) for item in json.loads(plugins)}


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/etc/debian_version").exists(), reason="wants root on Debian")
def test_packages_that_are_there_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wanted = [pin for pin in pins.load().every() if isinstance(pin.origin, Package)]
    with exclusive(settings.cache_home() / "toolchain" / "lock", None) as lock:
        working = Work(lock, lambda line: None, lambda line: None)
        working.prepare()
        found = debian.install(pins.load().package, wanted, working)
    assert [pin.name for pin, _ in found] == [pin.name for pin in wanted]
    assert {candidate.source for _, candidate in found} == {"debian"}
