"""The passphrase of the stacks' secrets: made once, whoever needs it first."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.errors import PermanentError, UsageError
from provisioner.passphrase import ensure_passphrase_file


def test_a_passphrase_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "passphrase"
    ensure_passphrase_file(path)
    first = path.read_text()
    ensure_passphrase_file(path)
    assert path.read_text() == first
    assert len(first.strip()) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["passphrase"]


def test_processes_that_race_for_the_passphrase_agree(tmp_path: Path) -> None:
    path = tmp_path / "passphrase"
    program = (
        "import sys, pathlib; from provisioner.passphrase import ensure_passphrase_file as make\n"
        "sys.stdin.readline(); path = pathlib.Path(sys.argv[1]); make(path); print(path.read_text().strip())"
    )
    command = [sys.executable, "-c", program, str(path)]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    seen = {racer.communicate(timeout=60)[0].strip() for racer in racers}
    assert seen == {path.read_text().strip()}
    assert [item.name for item in tmp_path.iterdir()] == ["passphrase"]


def test_an_empty_passphrase_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "passphrase"
    path.write_text(" \n")
    with pytest.raises(UsageError, match="is empty"):
        ensure_passphrase_file(path)


def test_a_passphrase_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="directory") as caught:
        ensure_passphrase_file(tmp_path)
    assert caught.value.reason == "PassphraseUnavailable"
