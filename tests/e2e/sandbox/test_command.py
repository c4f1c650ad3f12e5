"""The same through the command line: what is printed, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal

import pytest
import yaml

from provisioner.cli.main import main


@pytest.fixture(autouse=True)
def own_state(home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home.parents[1]))


def test_status_shows_processes_and_nodes_and_fails_when_one_is_dead(cluster, capsys, until) -> None:
    name = ["--name", cluster.sandbox.name]
    assert main(["sandbox", "status", *name]) == 0
    shown = capsys.readouterr()
    assert "kube-apiserver" in shown.out
    assert "node-1   real   ready" in shown.out
    assert "/log" in shown.err

    assert main(["sandbox", "status", *name, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    scheduler = next(item for item in document["processes"] if item["name"] == "kube-scheduler")
    assert document["ready"] is True
    assert document["nodes"][0]["name"] == "node-1"

    os.kill(scheduler["pid"], signal.SIGKILL)
    until("it is dead", lambda: not cluster.sandbox.status().ready)
    assert main(["sandbox", "status", *name]) == 3
    shown = capsys.readouterr()
    assert "kube-scheduler is dead" in shown.err
    assert f"provisioner sandbox up --name {cluster.sandbox.name}" in shown.err

    assert main(["sandbox", "up", *name]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "started kube-scheduler" in shown.err
    assert f"sandbox {cluster.sandbox.name} is ready (1 node, " in shown.err


def test_list_shows_every_sandbox(cluster, capsys) -> None:
    assert main(["sandbox", "list", "-o", "yaml"]) == 0
    assert {row["name"]: row["ready"] for row in yaml.safe_load(capsys.readouterr().out)} == {
        cluster.sandbox.name: True
    }


def test_the_kubeconfig_is_printed_as_path_and_as_shell_line(cluster, capsys) -> None:
    assert main(["sandbox", "kubeconfig", "--name", cluster.sandbox.name]) == 0
    assert capsys.readouterr().out == f"{cluster.sandbox.kubeconfig}\n"
    assert main(["sandbox", "kubeconfig", "--name", cluster.sandbox.name, "--export"]) == 0
    assert capsys.readouterr().out == f"export KUBECONFIG={cluster.sandbox.kubeconfig}\n"


def test_an_image_is_built_and_loaded_in_one_go(cluster, capsys, tmp_path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    words = ["image", "python", "--name", "hello:1", "--add", f"{tmp_path}/hello.py:/hello.py"]
    assert main(["sandbox", *words, "--load", "--sandbox", cluster.sandbox.name]) == 0
    assert capsys.readouterr().out == "docker.io/library/hello:1\n"
    cluster.run("hello", "python3 /hello.py", image="hello:1", restartPolicy="Never")
    assert cluster.finished("hello") == "hello\n"
    cluster.delete("hello")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["status", "--name", "nowhere"], 1, "there is no sandbox 'nowhere'"),
        (["kubeconfig", "--name", "nowhere"], 1, "there is no sandbox 'nowhere'"),
        (["up", "--name", "No"], 2, "sandbox name 'No' is not accepted"),
        (["up", "--name", "new", "--hollow", "-1"], 2, "--hollow accepts 0 to 1000 (got -1)"),
        (["load-image", "/etc/hostname"], 2, "/etc/hostname is not an image archive"),
        (["image", "python", "--with", "no-such-package-here"], 2, "'no-such-package-here' is not installed"),
        (["image", "python", "--name", "Bad Name"], 2, "'Bad Name' is not an image name"),
        (["image", "python", "--add", "x"], 2, "--add 'x'"),
        (["down", "--name", "nowhere"], 0, "there is no sandbox nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words: list[str], code: int, message: str, capsys, home) -> None:
    assert main(["sandbox", *words]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert not (home / "new").exists()
