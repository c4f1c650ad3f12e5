"""Settings from a file: into every part, below the environment, and refused with each wrong line named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.errors import UsageError
from provisioner.settings import SETTINGS_FILE, parse_file


def shown(file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "provisioner", "settings", "-o", "json"]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {SETTINGS_FILE: str(file)} | environment, check=False
    )


def test_a_file_gives_settings_and_the_environment_wins(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    file.write_text("# ours\n\nPROVISIONER_WORKERS=3\nPROVISIONER_PORT = 8123\nPROVISIONER_GC_GRACE=1h\n")
    done = shown(file, PROVISIONER_PORT="8124")
    assert done.returncode == 0, done.stderr
    found = {row["variable"]: (row["value"], row["source"]) for row in json.loads(done.stdout)}
    assert found["PROVISIONER_WORKERS"] == ("3", "file")
    assert found["PROVISIONER_PORT"] == ("8124", "environment")
    assert found["PROVISIONER_GC_GRACE"] == ("1h", "file")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = shown(tmp_path / "none.env")
    assert done.returncode == 2
    assert "cannot read the settings file" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_wrong_line_is_named() -> None:
    with pytest.raises(UsageError) as raised:
        parse_file("PROVISIONER_WORKER=3\nWORKERS\nPATH=/bin", "settings.env")
    assert raised.value.message == (
        "settings.env is not valid: line 1: PROVISIONER_WORKER is no setting; line 2: not NAME=VALUE; "
        "line 3: PATH is no setting"
    )
