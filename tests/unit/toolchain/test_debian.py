"""Where Debian's packages can be installed, and what is said where they cannot."""

import subprocess
from pathlib import Path

import pytest

from provisioner.toolchain import pins, probe
from provisioner.toolchain.debian import apt_command, refusal

NAMES = ["runc", "busybox-static"]


def test_root_on_debian_may_install() -> None:
    assert refusal(NAMES, is_debian=True, is_root=True) is None


@pytest.mark.parametrize(("is_debian", "is_root"), [(True, False), (False, True), (False, False)])
def test_others_are_told_the_packages(is_debian: bool, is_root: bool) -> None:
    error = refusal(NAMES, is_debian=is_debian, is_root=is_root)
    assert error is not None
    assert error.reason == "PackagesMissing"
    assert "runc busybox-static" in error.message
    assert ("sudo apt-get install" in error.hint) == is_debian


def test_apt_never_removes_and_never_asks() -> None:
    for download in (True, False):
        command = apt_command(NAMES, download=download)
        assert {"--yes", "--no-remove", "--no-install-recommends"} <= set(command)
        assert ("--download-only" in command) == download
        assert command[-2:] == NAMES


def compiled(tmp_path: Path, *flags: str) -> Path:
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 0; }\n")
    target = tmp_path / f"binary{'-'.join(flags)}"
    done = subprocess.run(["cc", *flags, "-o", str(target), str(source)], capture_output=True, check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"no C compiler for {flags}")
    return target


def test_a_binary_that_needs_libraries_is_told_from_one_that_needs_none(tmp_path: Path) -> None:
    assert probe.is_static(compiled(tmp_path, "-static"))
    assert not probe.is_static(compiled(tmp_path))


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 58, b"\x7fELF\x02\x01" + b"\x38" * 99]
)
def test_what_is_no_whole_program_is_not_taken_for_a_static_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert not probe.is_static(path)


def test_a_program_of_the_same_name_elsewhere_is_not_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor = tmp_path / "bridge"
    impostor.write_text("#!/bin/sh\necho CNI protocol versions supported: 1.0.0\n")
    impostor.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe.search(pins.load().find("bridge"))
    assert found is None or found.path.parent != tmp_path
