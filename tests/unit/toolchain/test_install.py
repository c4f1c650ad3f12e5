"""The whole of an installation with small binaries: real processes, real signals, a real second installer."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner import toolchain
from provisioner.errors import PermanentError
from provisioner.toolchain import Condition, Group, State


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def condition_of(name: str) -> Condition:
    return state_of(name).condition


def state_of(name: str) -> State:
    return next(state for state in toolchain.status(Group) if state.pin.name == name)


def install(*groups: Group, folder: Path | None = None) -> None:
    toolchain.install(groups or (Group.ENGINE,), folder=folder)


def until_the_build_holds(small: "Small", *words: str) -> tuple[subprocess.Popen[str], list[int]]:  # noqa: F821
    """Start an installation whose build of the first binary does not end; its process and the build's."""
    small.hold.touch()
    process = small.start("install", *words)
    wait_until(Path(f"{small.hold}.ready").exists)
    pids = [int(Path(f"{small.hold}.{name}").read_text()) for name in ("child", "ready")]
    Path(f"{small.hold}.ready").unlink()
    return process, pids


def test_from_nothing_to_all_and_then_nothing_to_do(small) -> None:  # type: ignore[no-untyped-def]
    code, out, err = small.run("install", "--group", "engine")
    assert (code, out) == (0, "")
    assert small.built() == ["first", "second"]
    assert "1 of 2: building first v1.2.3" in err
    assert "2 of 2: second v1.2.3 is ready" in err
    assert not (small.cache / "toolchain" / "build").exists(), "the build's caches are removed"
    code, _, err = small.run("install", "--group", "engine")
    assert code == 0
    assert small.built() == ["first", "second"], "nothing was built again"
    assert "the toolchain is ready: 2 binaries" in err
    found = toolchain.locate("first")
    assert (found.version, found.source, found.path) == ("1.2.3", "cache", small.binary("first"))
    assert found.size == small.binary("first").stat().st_size


def test_locate_runs_nothing_when_the_binary_is_known(small, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    install()

    def refuse(*_words: object, **_options: object) -> None:
        pytest.fail("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert toolchain.locate("second").version == "1.2.3"


def test_locate_of_what_is_missing_says_what_to_run(small) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PermanentError, match=r"first 1\.2\.3 is missing") as raised:
        toolchain.locate("first")
    assert raised.value.reason == "ToolMissing"
    assert raised.value.hint == "run `provisioner toolchain install --group engine`"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("which", ["first", "second"])
def test_killed_in_the_middle(small, number: signal.Signals, which: str) -> None:  # type: ignore[no-untyped-def]
    if which == "second":
        install()
        small.binary("second").unlink()
        small.builds.unlink()
    process, builders = until_the_build_holds(small, "--group", "engine")
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=60)
    wait_until(lambda: not any(map(alive, builders)))
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert "the same command continues" in err
    assert small.half_installed() == []
    assert condition_of(which) is not Condition.OK

    small.hold.unlink()
    small.builds.unlink()
    code, _, err = small.run("install", "--group", "engine")
    assert code == 0, err
    assert small.built() == (["first", "second"] if which == "first" else ["second"]), "what was finished stays"
    assert small.half_installed() == []
    assert {state.condition for state in toolchain.status([Group.ENGINE])} == {Condition.OK}
    assert not (small.cache / "toolchain" / "build").exists()


def test_a_second_installer_waits_and_then_finds_all_done(small) -> None:  # type: ignore[no-untyped-def]
    first, _ = until_the_build_holds(small, "--group", "engine")
    second = small.start("install", "--group", "engine")
    assert second.stderr is not None
    line = second.stderr.readline()
    assert f"another installation is under way (process {first.pid}, since " in line
    small.hold.unlink()
    # The held build is a shell that waits for its sleeping child: ending the child lets it go on.
    os.kill(int(Path(f"{small.hold}.child").read_text()), signal.SIGKILL)
    assert first.wait(timeout=60) == 0
    assert second.wait(timeout=60) == 0
    first.communicate()
    second.communicate()
    assert small.built() == ["first", "second"], "each was built once"


HARMS: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, 5),
    "not executable": lambda path: path.chmod(0o644),
    "another checksum": lambda path: path.write_text(path.read_text().replace("1.2.3", "9.9.9")),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("said", HARMS)
def test_a_broken_binary_is_noticed_and_built_again(small, said: str) -> None:  # type: ignore[no-untyped-def]
    install()
    small.builds.unlink()
    HARMS[said](small.binary("second"))
    state = state_of("second")
    assert state.condition is Condition.BROKEN
    assert said in state.detail
    with pytest.raises(PermanentError, match=r"second 1\.2\.3 is broken"):
        toolchain.locate("second")
    assert small.run("status", "--group", "engine")[0] == 3
    code, _, err = small.run("install", "--group", "engine")
    assert code == 0, err
    assert f"second: {state.detail}" in err.replace("note: ", "")
    assert small.built() == ["second"], "only the broken one was built"
    assert condition_of("second") is Condition.OK


def test_a_change_that_left_no_trace_is_found_by_status_and_from_then_on_by_all(small) -> None:  # type: ignore[no-untyped-def]
    install()
    path = small.binary("second")
    before = path.stat()
    path.write_text(path.read_text().replace("1.2.3", "9.9.9"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert condition_of("second") is Condition.BROKEN
    with pytest.raises(PermanentError, match="another checksum"):
        toolchain.locate("second")
    install()
    assert toolchain.locate("second").version == "1.2.3"
    assert small.half_installed() == []


def test_a_binary_without_a_record_is_not_trusted(small, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    install()
    (record,) = (small.cache / "toolchain" / "records").glob("second@*")
    record.unlink()
    assert state_of("second").detail == "its installation was interrupted"
    monkeypatch.setenv("PATH", f"{small.binary('second').parent}:{os.environ['PATH']}")
    assert condition_of("second") is Condition.BROKEN, "nor is it when the cache itself is on PATH"
    small.builds.unlink()
    install()
    assert small.built() == ["second"]


def test_a_build_that_fails_names_its_log_and_keeps_what_was_there(small) -> None:  # type: ignore[no-untyped-def]
    small.fail.touch()
    code, out, err = small.run("install", "--group", "engine")
    assert (code, out) == (1, "")
    log = small.cache / "toolchain" / "logs" / "first.log"
    assert "error: building first failed with exit code 1: undefined: everything" in err
    assert f"hint: the whole output is in {log}" in err
    assert "Traceback" not in err
    assert "undefined: everything" in log.read_text()
    assert small.half_installed() == []
    small.fail.unlink()
    install()
    assert condition_of("first") is Condition.OK


def test_a_build_that_makes_another_version_is_refused(small, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("VERSION", "1.2.4")
    with pytest.raises(PermanentError, match=r"first is 1\.2\.4, and 1\.2\.3 is wanted"):
        install()
    assert not small.binary("first").exists()


def test_a_suitable_binary_on_path_is_used_and_remembered(small) -> None:  # type: ignore[no-untyped-def]
    theirs = small.script("first", "#!/bin/sh\necho first v1.2.3\n")
    assert state_of("first").binary is not None
    install()
    assert small.built() == ["second"]
    assert (toolchain.locate("first").path, toolchain.locate("first").source) == (theirs, "path")
    theirs.unlink()
    assert condition_of("first") is Condition.MISSING
    install()
    assert toolchain.locate("first").source == "cache"


def test_another_version_on_path_is_passed_over(small) -> None:  # type: ignore[no-untyped-def]
    small.script("first", "#!/bin/sh\necho first v1.0.0\n")
    assert condition_of("first") is Condition.UNSUITABLE
    assert "is 1.0.0, and 1.2.3 is wanted" in state_of("first").detail
    install()
    assert toolchain.locate("first").source == "cache"


def test_prebuilt_binaries_are_taken_from_a_folder(small, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "usb"
    (folder / "deeper").mkdir(parents=True)
    (folder / "first").write_text("#!/bin/sh\necho first v1.2.3\n")
    (folder / "first").chmod(0o755)
    (folder / "deeper" / "second").write_text("#!/bin/sh\necho second v1.2.3\n")
    (folder / "deeper" / "second").chmod(0o755)
    code, _, err = small.run("install", "--group", "engine", "--from", str(folder))
    assert code == 0, err
    assert small.built() == []
    assert state_of("first").detail == f"copied from {folder / 'first'}"
    assert toolchain.locate("second").path == small.binary("second")


def test_a_folder_that_lacks_some_gives_what_it_has(small, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "usb"
    folder.mkdir()
    (folder / "first").write_text("#!/bin/sh\necho first v0.0.1\n")
    (folder / "first").chmod(0o755)
    (folder / "second").write_text("#!/bin/sh\necho second v1.2.3\n")
    (folder / "second").chmod(0o755)
    code, _, err = small.run("install", "--group", "engine", "--group", "sandbox", "--from", str(folder))
    assert code == 1
    assert "first is 0.0.1, and 1.2.3 is wanted" in err
    assert f"third is not in {folder}" in err
    assert condition_of("second") is Condition.OK
    assert condition_of("first") is Condition.MISSING
    assert small.built() == []


def test_too_little_space_is_said_before_anything_is_built(small, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    small.pins.write_text(small.pins.read_text().replace("space_gb = 0.001", "space_gb = 999999"))
    code, _, err = small.run("install", "--group", "engine")
    assert code == 1
    assert "building demo needs 999999.0 GB for a while" in err
    assert "hint: free some space, or set XDG_CACHE_HOME" in err
    assert small.built() == []


def test_a_cache_that_cannot_be_written_is_one_clear_line(small) -> None:  # type: ignore[no-untyped-def]
    small.cache.parent.mkdir(parents=True)
    small.cache.write_text("a file where a folder should be")
    code, _, err = small.run("install", "--group", "engine")
    assert code == 1
    assert str(small.cache) in err
    assert "Traceback" not in err


def test_what_a_killed_clean_up_left_is_removed_by_the_next_call(small) -> None:  # type: ignore[no-untyped-def]
    install()
    left = small.cache / "toolchain" / "removed-1" / "gomod" / "m@v1"
    left.mkdir(parents=True)
    (left / "file").touch()
    left.chmod(0o555)
    install()
    assert not (small.cache / "toolchain" / "removed-1").exists()
