"""A binary that changed after it was installed is noticed, whatever changed; a copied cache is not mistaken for one."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.toolchain import pins, record
from provisioner.toolchain.record import Record

CONTENT = b"\x7fELF" + bytes(range(256)) * 64


@pytest.fixture
def installed(cache: Path) -> Record:
    place = cache / "toolchain" / "etcd-v3.7.3" / "etcd"
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)
    place.chmod(0o755)
    file = record.describe(place, place=place.relative_to(cache))
    return Record(name="etcd", version="3.7.3", source="cache", origin="test", files=(file,))


def path_of(known: Record) -> Path:
    return known.files[0].place


def flip_a_bit(path: Path) -> None:
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("thorough", [True, False])
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.unlink(), "gone"),
        (lambda path: os.truncate(path, 100), "truncated: 100 of"),
        (lambda path: path.write_bytes(CONTENT + b"x"), "has grown"),
        (lambda path: path.write_bytes(CONTENT[::-1]), "another checksum"),
        (lambda path: path.chmod(0o644), "not executable"),
    ],
)
def test_harm_is_noticed(installed: Record, harm: Callable[[Path], object], said: str, thorough: bool) -> None:
    assert record.intact(installed, thorough=thorough) == ""
    harm(path_of(installed))
    assert said in record.intact(installed, thorough=thorough)


def test_a_flipped_bit_that_left_no_trace_is_noticed_by_the_checksum(installed: Record) -> None:
    flip_a_bit(path_of(installed))
    assert "another checksum" in record.intact(installed, thorough=True)


def test_a_new_time_alone_is_no_damage(installed: Record) -> None:
    os.utime(path_of(installed), ns=(1, 1))
    assert record.intact(installed, thorough=False) == ""
    assert record.intact(installed, thorough=True) == ""


def test_a_cache_may_be_moved(installed: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = pins.load().find("etcd")
    record.write(pin, installed)
    shutil.move(tmp_path / "cache", tmp_path / "elsewhere")
    assert record.read(pin) is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    moved = record.read(pin)
    assert moved == installed
    assert record.intact(moved, thorough=True) == ""
    assert path_of(moved).is_relative_to(tmp_path / "elsewhere")


def test_what_a_binary_needs_must_be_there_too(installed: Record, tmp_path: Path) -> None:
    needed = tmp_path / "python"
    needed.touch()
    needing = installed.model_copy(update={"needs": (needed,)})
    assert record.intact(needing, thorough=False) == ""
    needed.unlink()
    assert str(needed) in record.intact(needing, thorough=False)


@pytest.mark.parametrize(
    "text", ["", "{", '{"name": "etcd"}', "[1]", '{"name": "etcd", "shape": "of another release"}']
)
def test_a_record_that_cannot_be_understood_is_none(installed: Record, text: str) -> None:
    pin = pins.load().find("etcd")
    record.write(pin, installed)
    assert record.read(pin) == installed
    (file,) = (path_of(installed).parents[1] / "records").iterdir()
    file.write_text(text)
    assert record.read(pin) is None
