"""What the commands print, and their exit codes."""

import json

import pytest
import yaml

from provisioner.cli.toolchain import human_size, human_time


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (439, "439 B"), (2_400, "2 kB"), (122_265_865, "122 MB"), (1_234_567_890, "1.2 GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert human_size(size) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (191, "3 min 11 s")])
def test_times(seconds: float, text: str) -> None:
    assert human_time(seconds) == text


def test_status_of_an_empty_machine_is_not_ready(small) -> None:  # type: ignore[no-untyped-def]
    code, out, err = small.run("status")
    assert code == 3
    lines = out.splitlines()
    assert lines[0].split() == ["NAME", "GROUP", "VERSION", "FROM", "SIZE", "STATE", "PATH"]
    assert lines[1].split() == ["first", "engine", "1.2.3", "<none>", "<none>", "missing", "<none>"]
    assert "hint: run `provisioner toolchain install --group engine --group sandbox`" in err


def test_status_for_machines(small) -> None:  # type: ignore[no-untyped-def]
    small.run("install", "--group", "engine")
    code, out, err = small.run("status", "--group", "engine", "-o", "json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert [row["name"] for row in rows] == ["first", "second"]
    assert rows[0] == {
        "name": "first",
        "group": "engine",
        "version": "1.2.3",
        "from": "cache",
        "size": small.binary("first").stat().st_size,
        "path": str(small.binary("first")),
        "state": "ok",
        "detail": rows[0]["detail"],
    }
    assert rows[0]["detail"].startswith("built from example.invalid/demo v1.2.3 with Go 1.26.8")
    assert yaml.safe_load(small.run("status", "--group", "engine", "-o", "yaml")[1]) == rows


def test_a_group_that_does_not_exist_is_a_usage_error(small) -> None:  # type: ignore[no-untyped-def]
    code, _, err = small.run("install", "--group", "engines")
    assert code == 2
    assert "'engines'" in err
    assert "Traceback" not in err


def test_a_folder_that_does_not_exist_is_a_usage_error(small) -> None:  # type: ignore[no-untyped-def]
    code, _, err = small.run("install", "--from", "/no/such/folder")
    assert code == 2
    assert "/no/such/folder" in err
