"""The command line's frame: exit codes, errors, formats."""

import json
import subprocess
import sys

import pytest
import yaml

from provisioner import __version__
from provisioner.cli import output
from provisioner.cli.main import app, main
from provisioner.cli.output import Exit, Format, print_result
from provisioner.errors import PermanentError, Problem, RefusedError, SpecError, UsageError


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "provisioner", *words], capture_output=True, text=True, check=False)


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"provisioner {__version__}\n")


def test_help_groups_the_verbs():
    done = run("--help")
    assert done.returncode == 0
    assert "Local cluster and tools:" in done.stdout
    assert "Exit codes: 0 done" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("group", ["", "toolchain", "sandbox", "agents", "gc"])
def test_no_summary_is_cut_off(group: str):
    lines = run(*group.split(), "--help").stdout.splitlines()
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage:")] == []


@pytest.mark.parametrize("words", [["frobnicate"], ["--frobnicate"], ["settings", "-o", "xml"]])
def test_usage_errors_are_a_line_and_a_hint_on_stderr(words: list[str]):
    done = run(*words)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.fixture
def failing(request: pytest.FixtureRequest):
    def fail() -> None:
        raise request.param

    app.command("fail-for-test")(fail)
    yield request.param
    app.registered_commands.pop()


@pytest.mark.parametrize(
    ("failing", "code"),
    [
        (PermanentError("broken", hint="mend it"), Exit.FAILED),
        (UsageError("wrong word"), Exit.USAGE),
        (SpecError([Problem("image", "'A'", "an image")]), Exit.USAGE),
        (RefusedError("not yours"), Exit.REFUSED),
        (RuntimeError("a fault"), Exit.FAILED),
    ],
    indirect=["failing"],
)
def test_errors_have_their_exit_code_and_no_traceback(failing, code: Exit, capsys: pytest.CaptureFixture[str]):
    assert main(["fail-for-test"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert "Traceback" not in shown


@pytest.mark.parametrize("failing", [PermanentError("broken")], indirect=True)
def test_debug_shows_the_traceback(failing, capsys: pytest.CaptureFixture[str]):
    assert main(["--debug", "fail-for-test"]) == Exit.FAILED
    assert "Traceback" in capsys.readouterr().err


ROWS = [{"name": "a", "ready": 3}, {"name": "long-name", "ready": None}]


def test_table(capsys: pytest.CaptureFixture[str]):
    print_result(ROWS, Format.TABLE)
    assert capsys.readouterr().out == "NAME        READY\na           3\nlong-name   <none>\n"


def test_machine_formats(capsys: pytest.CaptureFixture[str]):
    print_result(ROWS, Format.JSON)
    assert json.loads(capsys.readouterr().out) == ROWS
    print_result(ROWS, Format.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == ROWS


@pytest.mark.parametrize("value", [ROWS, ROWS[0]])
def test_results_that_follow_each_other_can_be_told_apart(value, capsys):
    for form, read in (
        (Format.JSON, lambda text: [json.loads(line) for line in text.splitlines()]),
        (Format.YAML, lambda text: list(yaml.safe_load_all(text))),
    ):
        for _ in range(2):
            print_result(value, form, more=True)
        assert read(capsys.readouterr().out) == [value, value]


def test_empty_list_is_said_on_stderr_only(capsys: pytest.CaptureFixture[str]):
    print_result([], Format.TABLE, empty="no services")
    assert capsys.readouterr().out == ""
    print_result([], Format.JSON)
    assert json.loads(capsys.readouterr().out) == []


def test_settings_never_show_a_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROVISIONER_PASSPHRASE", "hunter2")
    for form in ("table", "json", "yaml"):
        done = run("settings", "-o", form)
        assert done.returncode == 0
        assert "hunter2" not in done.stdout + done.stderr


def test_settings_show_the_janitors_too_as_they_are_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROVISIONER_GC_VERIFY_TIMEOUT", "90s")
    rows = {row["variable"]: row for row in json.loads(run("settings", "-o", "json").stdout)}
    assert rows["PROVISIONER_GC_VERIFY_TIMEOUT"] == {
        "variable": "PROVISIONER_GC_VERIFY_TIMEOUT",
        "value": "1m30s",
        "source": "environment",
        "type": "duration, as 15m",
        "bounds": ">= 1s, <= 1h",
        "description": "time for objects to be really gone after their deletion",
    }
    assert rows["PROVISIONER_GC_MAX_SHARE"]["value"] == "50%"
    assert rows["PROVISIONER_GC_OWNERS"]["value"] == "flyteworkflow,lease,object"
    assert rows["PROVISIONER_WORKERS"]["bounds"] == ">= 1, <= 64"
    assert all(row["description"] and row["type"] and row["source"] for row in rows.values())
    table = run("settings").stdout
    assert "PROVISIONER_GC_VERIFY_TIMEOUT=1m30s   (environment)" in table
    assert max(len(line) for line in table.splitlines() if line.startswith(" ")) <= 80


def test_wrong_settings_are_all_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROVISIONER_WORKERS", "0")
    monkeypatch.setenv("PROVISIONER_PORT", "x")
    done = run("settings")
    assert done.returncode == Exit.USAGE
    assert "PROVISIONER_WORKERS" in done.stderr
    assert "PROVISIONER_PORT" in done.stderr


def test_exit_codes_are_the_documented_ones():
    assert {code.name: code.value for code in output.Exit} == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "NOT_READY": 3,
        "REFUSED": 4,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("links", ['{"A":"https://logs/{{ .pod }}"}', '{" ":"x"}', '{"A":1}', "[1]", "x"])
def test_wrong_templates_of_links_are_named(monkeypatch: pytest.MonkeyPatch, links: str):
    monkeypatch.setenv("PROVISIONER_LOG_LINKS", links)
    done = run("settings")
    assert done.returncode == 2
    assert "PROVISIONER_LOG_LINKS" in done.stderr


def test_serving_others_in_plain_text_is_a_choice():
    done = run("serve", "--port", "0", "--metrics-port", "0")
    assert done.returncode == 2
    assert "--plaintext" in done.stderr
    assert "Traceback" not in done.stderr
