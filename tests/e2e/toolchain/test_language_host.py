"""The plain `pulumi` command runs Python programs through our language host: a real engine, real programs."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner import toolchain

PROGRAM = """
import sys
import pulumi
import pieces
pulumi.export("prefix", sys.prefix)
pulumi.export("argv_is_clean", pulumi.runtime.settings.get_engine() is not None)
pulumi.export("greeting", pulumi.Config().require("greeting"))
"""

# Registered when the module is imported: a second run in one process would register nothing.
PIECES = """
import pulumi
class Piece(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("test:index:Piece", name)
Piece("one")
"""


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Project:
    """A Pulumi project with a state backend of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "state").mkdir()
        (root / "project").mkdir()
        self.write("Pulumi.yaml", "name: hosted\nruntime: python\n")
        self.write("__main__.py", PROGRAM)
        self.write("pieces.py", PIECES)
        self.environment = {
            **os.environ,
            **toolchain.environment(),
            # The one that is active, whichever installation wrote the launcher.
            "VIRTUAL_ENV": sys.prefix,
            "PULUMI_BACKEND_URL": f"file://{root / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        self.pulumi("stack", "init", "s")
        self.pulumi("config", "set", "greeting", "hello")

    def write(self, name: str, text: str) -> None:
        (self.root / "project" / name).write_text(textwrap.dedent(text))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["pulumi", *words, "--non-interactive"],
            cwd=self.root / "project",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def pulumi(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        out, _ = process.communicate(timeout=240)
        assert process.returncode == code, out
        return out

    def outputs(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.pulumi("stack", "output", "--json"))
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_preview_and_update_of_one_command_both_run_the_whole_program(project: Project) -> None:
    shown = project.pulumi("preview")
    assert "test:index:Piece" in shown
    assert "warning" not in shown
    project.pulumi("up", "--yes")
    assert project.outputs() == {"prefix": sys.prefix, "argv_is_clean": True, "greeting": "hello"}
    resources = json.loads(project.pulumi("stack", "export"))["deployment"]["resources"]
    assert sorted(item["type"] for item in resources) == ["pulumi:pulumi:Stack", "test:index:Piece"]
    assert "2 unchanged" in project.pulumi("up", "--yes", "--skip-preview")


def test_a_program_may_stand_in_a_file_of_another_name(project: Project) -> None:
    project.write("Pulumi.yaml", "name: hosted\nruntime: python\nmain: other.py\n")
    project.write("other.py", "import pulumi, pieces\npulumi.export('from', 'other')\n")
    project.pulumi("up", "--yes", "--skip-preview")
    assert project.outputs() == {"from": "other"}


def test_what_a_program_prints_and_raises_is_shown(project: Project) -> None:
    project.write("__main__.py", "print('a line of the program')\nraise ValueError('the program is wrong')\n")
    shown = project.pulumi("preview", code=1)
    assert "a line of the program" in shown
    assert shown.count("ValueError: the program is wrong") == 1
    assert '__main__.py", line 2, in <module>' in shown
    assert "language_host.py" not in shown


def test_the_virtual_environment_of_the_project_runs_the_program(project: Project) -> None:
    environment = project.root / "project" / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    (site,) = environment.glob("lib/python*/site-packages")
    # The SDK is the one of this test's own environment.
    (site / "sdk.pth").write_text(sysconfig.get_path("purelib") + "\n")
    project.write("Pulumi.yaml", "name: hosted\nruntime: {name: python, options: {virtualenv: env}}\n")
    project.pulumi("up", "--yes")
    assert project.outputs()["prefix"] == str(environment)


def test_a_virtual_environment_that_is_not_there_is_named(project: Project) -> None:
    project.write("Pulumi.yaml", "name: hosted\nruntime: {name: python, options: {virtualenv: absent}}\n")
    shown = project.pulumi("preview", code=1)
    assert "the virtual environment of Pulumi.yaml has no" in shown
    assert str(project.root / "project" / "absent" / "bin" / "python") in shown


def test_about_lists_the_packages_of_the_program(project: Project) -> None:
    about = json.loads(project.pulumi("about", "--json"))
    assert "grpcio" in {item["name"] for item in about["dependencies"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_host_outlives_its_engine(project: Project, number: signal.Signals) -> None:
    project.write(
        "__main__.py",
        """
        import os, pathlib, time
        pathlib.Path("pid.part").write_text(str(os.getpid()))
        pathlib.Path("pid.part").rename("pid")
        time.sleep(600)
        """,
    )
    engine = project.start("up", "--yes", "--skip-preview")
    file = project.root / "project" / "pid"
    wait_until(file.exists)
    host = int(file.read_text())
    assert Path(f"/proc/{host}").exists()
    # To the CLI alone, as a supervisor does.
    engine.send_signal(number)
    wait_until(lambda: not running(host))
    engine.communicate(timeout=60)
    assert engine.returncode != 0


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
