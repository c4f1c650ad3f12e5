"""`provisioner agents` against agents that live and agents that do not."""

import contextlib
import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
import yaml

from provisioner.cli.main import main

from .conftest import PATIENCE, until, write_config


@pytest.fixture(scope="module")
def agents(module_fleet):
    """Two live agents that both announce `shared`, and a configuration that names a dead one too."""
    one = module_fleet.old_style("one", "--type", "async:shared", "--category", "sync:prompt:2")
    two = module_fleet.old_style("two", "--type", "async:shared", "--type", "async:named")
    block = {
        "supportedTaskTypes": ["shared", "unheard"],
        "defaultAgent": {"endpoint": two.endpoint, "insecure": True},
        "agents": {
            "one": {"endpoint": one.endpoint, "insecure": True},
            "two": {"endpoint": two.endpoint, "insecure": True},
            "dead": {"endpoint": "127.0.0.1:1", "insecure": True},
        },
        "agentForTaskTypes": [{"named": "one"}, {"lost": "nobody"}],
    }
    return block, write_config(module_fleet.folder / "agents.yaml", block)


def run(capfd, *words):
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


def test_the_table_says_who_why_and_since_when(agents, capfd):
    _, config = agents
    code, out, err = run(capfd, "agents", "--config", str(config))
    assert code == 0
    lines = out.splitlines()
    assert re.split(r"\s{3,}", lines[0]) == [
        "TASK TYPE", "VERSION", "MODE", "AGENT", "ENDPOINT", "WHY", "LAST SEEN", "STALE", "CONFLICTS",
    ]  # fmt: skip
    rows = {tuple(re.split(r"\s{3,}", line)[:2]): re.split(r"\s{3,}", line) for line in lines[1:]}
    seen = [rows["shared", "0"].pop(6), rows["prompt", "2"].pop(6)]
    assert rows["shared", "0"][2:4] + rows["shared", "0"][5:] == ["async", "one", "announced", "no", "two"]
    assert rows["prompt", "2"][2:4] + rows["prompt", "2"][5:] == ["sync", "one", "announced", "no", "<none>"]
    # In whole seconds, of which one may have begun since.
    assert all(re.fullmatch(r"now|\d+s ago", text) for text in seen), seen
    assert rows["named", "*"][3] + rows["named", "*"][5] == "oneexplicit"
    assert rows["unheard", "0"][3] + rows["unheard", "0"][5] == "defaultAgentdefault"
    assert rows["*", "*"][3] == "defaultAgent"
    assert rows["<none>", "<none>"][3] == "two" or "dead" in out
    said = " ".join(err.split())
    assert "agent dead does not answer: connection refused" in said
    assert "shared (0) is announced by two too; one comes first and gets it" in said
    assert "the explicit entry for lost names nobody, which is no known agent" in said


def test_json_and_yaml_carry_the_same_and_nothing_else_is_on_stdout(agents, capfd):
    _, config = agents
    _, as_json, _ = run(capfd, "agents", "list", "--config", str(config), "-o", "json")
    _, as_yaml, _ = run(capfd, "agents", "-c", str(config), "-o", "yaml")
    rows, others = json.loads(as_json), yaml.safe_load(as_yaml)
    strip = lambda items: [{k: v for k, v in item.items() if k != "last_seen"} for item in items]  # noqa: E731
    assert strip(rows) == strip(others)
    shared = next(row for row in rows if row["task_type"] == "shared")
    assert (shared["agent"], shared["why"], shared["conflicts"]) == ("one", "announced", ["two"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", shared["last_seen"])
    dead = next(row for row in rows if row["agent"] == "dead")
    assert (dead["task_type"], dead["last_seen"], dead["stale"], dead["problem"]) == (
        None,
        None,
        True,
        "connection refused",
    )


def test_check_judges_and_fails_when_an_entry_is_wrong(agents, capfd, tmp_path):
    block, config = agents
    code, out, err = run(capfd, "agents", "check", "--config", str(config), "-o", "json")
    verdicts = {item["entry"]: item["verdict"] for item in json.loads(out)}
    assert verdicts["agentForTaskTypes.lost"] == "wrong"
    assert verdicts["agents.dead"] == "cannot tell"
    assert code == 1
    assert "entries are wrong" in err

    good = {key: value for key, value in block.items() if key in ("defaultAgent", "agents")}
    good["agents"] = {key: value for key, value in block["agents"].items() if key != "dead"}
    clean = write_config(tmp_path / "good.yaml", good)
    configmap = tmp_path / "configmap.yaml"
    propeller = {"plugins": {"agent-service": good | {"supportedTaskTypes": ["shared"]}}}
    configmap.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": {"agent.yaml": yaml.safe_dump(propeller)}}))
    code, out, err = run(capfd, "agents", "check", "--config", str(clean), "--configmap", str(configmap))
    assert code == 0
    assert re.search(r"^unnecessary\s+supportedTaskTypes\s+shared\s+one announces it$", out, re.MULTILINE)
    assert err == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["agents"], 2, "no agents are named"),
        (["agents", "check"], 2, "no agents are named"),
        (["agents", "--config", "{missing}"], 2, "cannot read the configuration"),
        (["agents", "--config", "{broken}"], 2, "agent-service.defaultAgent.endpoint: must be a text (got 5)"),
        (["agents", "--config", "{good}", "--poll-interval", "10"], 2, "--poll-interval has no unit"),
        (["agents", "--config", "{good}", "--poll-interval", "1ms"], 2, "--poll-interval must be at least 0.1 s"),
        (["agents", "--config", "{good}", "--stale-after", "-1s"], 2, "--stale-after must be at least 0 s"),
        (["agents", "--config", "{good}", "--discover-label", "a=b"], 2, "no effect without --discover"),
        (["agents", "nonsense"], 2, "nonsense"),
        (["gateway", "--config", "{broken}", "--port", "0", "--metrics-port", "0"], 2, "must be a text (got 5)"),
        (["gateway", "--config", "{good}", "--name", ""], 2, "--name must be printable ASCII"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(tmp_path, capfd, monkeypatch, words, code, said):
    monkeypatch.setattr("provisioner.logs.configure", lambda _settings: None)  # this process is not the gateway's
    files = {"missing": tmp_path / "missing", "broken": tmp_path / "broken.yaml", "good": tmp_path / "good.yaml"}
    files["broken"].write_text("agent-service: {defaultAgent: {endpoint: 5}}")
    files["good"].write_text("agent-service: {defaultAgent: {endpoint: '127.0.0.1:1'}}")
    got, out, err = run(capfd, *(word.format(**files) for word in words))
    assert (got, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


def watch(config, *words, **options):
    command = [sys.executable, "-m", "provisioner", "agents", "--config", str(config), "--watch", *words]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True, **options)


def test_watch_prints_a_line_per_change_when_piped(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    config = write_config(tmp_path / "agents.yaml", {"agents": {"old": {"endpoint": old.endpoint, "insecure": True}}})
    process = watch(config, "-o", "json", "--poll-interval", "1s", stdout=subprocess.PIPE, text=True)

    def line_with(*expected):
        """Read on to the line that says so: the words for one fault may change from round to round."""
        while True:
            rows = json.loads(process.stdout.readline())
            if [(row["task_type"], row["stale"]) for row in rows] == list(expected):
                return rows

    try:
        line_with(("legacy", False))
        old.kill()
        assert line_with(("legacy", True))[0]["problem"]
        old.command.extend(["--type", "async:more"])
        old.start()
        line_with(("legacy", False), ("more", False))
        process.send_signal(2)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()


def test_watch_redraws_on_a_terminal(fleet, tmp_path):
    old = fleet.old_style("old", "--type", "async:legacy")
    config = write_config(tmp_path / "agents.yaml", {"agents": {"old": {"endpoint": old.endpoint, "insecure": True}}})
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "140", "LINES": "30"}
    process = watch(config, "--poll-interval", "1s", stdout=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    screen = bytearray()

    def shows(text):
        while select.select([ours], [], [], 0)[0]:
            screen.extend(os.read(ours, 65536))
        return text in screen

    try:
        until(lambda: shows(b"legacy"), "the table")
        old.kill()
        until(lambda: shows(b"does not answer: connection refused"), "the remark")
        process.send_signal(2)
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                shows(b"")
        assert process.poll() == 0
    finally:
        process.kill()
        os.close(ours)
