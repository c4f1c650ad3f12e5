"""The launcher chooses its interpreter, whatever the paths look like."""

import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.toolchain.launcher import COPY, host_file, script

FAKE = '#!/bin/sh\ncase "$*" in *find_spec*) exit {found} ;; esac\necho "{name}" "$@"\n'


def python(folder: Path, name: str, *, has_sdk: bool = True) -> Path:
    path = folder / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(FAKE.format(found=0 if has_sdk else 1, name=name))
    path.chmod(0o755)
    return path


def launch(tmp_path: Path, own: Path, host: Path, active: Path | None, others: Path | None = None) -> str:
    launcher = tmp_path / "launcher"
    launcher.write_text(script(own, host))
    launcher.chmod(0o755)
    environment = {"PATH": str(others or tmp_path / "nothing")}
    if active is not None:
        environment["VIRTUAL_ENV"] = str(active)
    done = subprocess.run(
        [str(launcher), "127.0.0.1:1234"], env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("odd", ["plain", "with space", 'it\'s $HOME `x` "q" \\'])
def test_the_interpreter_of_the_installation_runs_the_host(tmp_path: Path, odd: str) -> None:
    own, host = python(tmp_path / odd, "own"), tmp_path / odd / "host.py"
    host.touch()
    assert launch(tmp_path, own, host, None) == f"own -P {host} 127.0.0.1:1234"


def test_an_active_environment_with_the_sdk_comes_first(tmp_path: Path) -> None:
    own, host = python(tmp_path / "own", "own"), tmp_path / "host.py"
    python(tmp_path / "with", "active")
    python(tmp_path / "without", "bare", has_sdk=False)
    assert launch(tmp_path, own, host, tmp_path / "with").startswith("active -P ")
    assert launch(tmp_path, own, host, tmp_path / "without").startswith("own -P ")
    assert launch(tmp_path, own, host, tmp_path / "gone").startswith("own -P ")


def test_the_installation_may_be_gone(tmp_path: Path) -> None:
    gone, host = tmp_path / "gone" / "bin" / "python", tmp_path / "gone" / "host.py"
    python(tmp_path / "with", "active")
    copy = tmp_path / COPY
    assert launch(tmp_path, gone, host, tmp_path / "with") == f"active -P {copy} 127.0.0.1:1234"
    others = python(tmp_path / "others", "other").rename(tmp_path / "others" / "bin" / "python3").parent
    assert launch(tmp_path, gone, host, None, others) == f"other -P {copy} 127.0.0.1:1234"


def test_without_any_interpreter_it_says_what_to_do(tmp_path: Path) -> None:
    bare = python(tmp_path / "bare", "bare", has_sdk=False)
    said = launch(tmp_path, bare, tmp_path / "host.py", None)
    assert "no Python 3.11 or newer has the Pulumi SDK" in said
    assert "`provisioner toolchain install --group engine`" in said


def test_the_host_is_a_file_that_needs_nothing_of_this_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(host_file())], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "usage: pulumi-language-python [options] ENGINE_ADDRESS\n"
    assert "import provisioner" not in host_file().read_text()
    assert "from provisioner" not in host_file().read_text()
