import json
import marshal
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from provisioner.errors import UsageError
from provisioner.sandbox.images import bytecode, distributions, python
from provisioner.sandbox.images.layer import Tree
from provisioner.sandbox.images.libraries import Libraries, parse_ldd
from provisioner.sandbox.images.python import Addition


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("numpy/__init__.py", True),
        ("numpy-2.0.dist-info/METADATA", True),
        ("numpy/testing/utils.py", True),
        ("numpy/__pycache__/x.cpython-311.pyc", False),
        ("../../../bin/f2py", False),
        ("_editable.pth", False),
        ("numpy/tests/test_x.py", False),
        ("numpy/tests/data/x.csv", False),
        ("numpy/_core/tests/_natype.py", True),
        ("numpy/_core/tests/__init__.py", True),
        ("tests.py", True),
    ],
)
def test_what_a_program_at_work_needs(path: str, needed: bool) -> None:
    assert distributions.is_needed(Path(path)) is needed


def test_the_closure_has_what_is_required_and_no_tools() -> None:
    names = {item.metadata["Name"].lower() for item in distributions.closure(["kubernetes"])}
    assert {"kubernetes", "urllib3", "pyyaml", "six"} <= names
    assert not names & {"pip", "setuptools", "wheel"}


def test_markers_and_extras_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        version = "1.0"

        def __init__(self, name: str, *requires: str) -> None:
            self.metadata, self.requires = {"Name": name}, list(requires)

    known = {
        "app": Fake("app", "other; python_version < '3'", "plain", "extra-one; extra == 'one'", "App[one]"),
        "plain": Fake("plain", "app"),
        "extra-one": Fake("extra-one"),
    }

    def distribution(name: str) -> Fake:
        if name.lower() not in known:
            raise metadata.PackageNotFoundError(name)
        return known[name.lower()]

    monkeypatch.setattr(distributions.metadata, "distribution", distribution)
    assert [item.metadata["Name"] for item in distributions.closure(["app"])] == ["app", "extra-one", "plain"]
    assert [item.metadata["Name"] for item in distributions.closure(["plain"])] == ["app", "extra-one", "plain"]
    known["app"].requires.pop()
    assert [item.metadata["Name"] for item in distributions.closure(["app"])] == ["app", "plain"]


@pytest.mark.parametrize(
    ("package", "reason"),
    [
        ("no-such-package-here", "NoSuchPackage"),
        ("numpy<0.1", "WrongVersion"),
        ("a b", "InvalidPackage"),
        ("", "InvalidPackage"),
    ],
)
def test_a_package_that_is_not_here_is_named(package: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        distributions.closure([package])
    assert caught.value.reason == reason


def test_an_editable_package_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match="editable") as caught:
        distributions.files(metadata.distribution("data-service-provisioner"))
    assert "--add" in caught.value.hint


def test_a_package_s_commands_run_with_the_image_s_interpreter(tmp_path: Path) -> None:
    found = distributions.commands(metadata.distribution("flytekit"), sys.executable)
    assert {"pyflyte", "pyflyte-execute"} <= set(found)
    script = tmp_path / "pyflyte-execute"
    script.write_text(found["pyflyte-execute"])
    script.chmod(0o755)
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert "--inputs" in done.stdout


def test_ldd_is_read_for_one_and_for_many_files() -> None:
    one = (
        "\tlinux-vdso.so.1 (0x1)\n\tlibm.so.6 => /lib/libm.so.6 (0x2)\n\tliba.so => not found\n\t/lib64/ld.so.2 (0x3)\n"
    )
    libraries = Libraries(frozenset({Path("/lib/libm.so.6"), Path("/lib64/ld.so.2")}), frozenset({"liba.so"}))
    assert parse_ldd(one, Path("/x")) == {Path("/x"): libraries}
    many = f"/x:\n{one}/y:\n\tstatically linked\n/z z:\n\tlibm.so.6 => /lib/libm.so.6 (0x2)\n"
    read = parse_ldd(many)
    assert read[Path("/x")] == libraries
    assert read[Path("/z z")] == Libraries(frozenset({Path("/lib/libm.so.6")}), frozenset())


@pytest.mark.parametrize("text", ["", "x", ":/app", "x:", "x:app", "/:app/../..", "/usr:/app/../etc"])
def test_an_addition_has_a_form(text: str) -> None:
    with pytest.raises(UsageError, match="--add"):
        Addition.parse(text)


def test_an_addition_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing"):
        Addition.parse(f"{tmp_path}/missing:/app")
    assert Addition.parse(f"{tmp_path}:/app") == Addition(tmp_path, "/app")


def test_bytecode_is_for_the_place_in_the_image_and_never_checked(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "good.py").write_text("def f(): return 1\n")
    (tmp_path / "bad.py").write_text("def :\n")
    tree = Tree()
    tree.file("/app/good.py", tmp_path / "good.py")
    tree.file("/app/bad.py", tmp_path / "bad.py")
    bytecode.add_bytecode(tree)
    tag = sys.implementation.cache_tag
    assert f"/app/__pycache__/bad.{tag}.pyc" not in tree.entries
    content = tree.entries[f"/app/__pycache__/good.{tag}.pyc"].source.read_bytes()
    assert content[4:8] == b"\1\0\0\0"  # PEP 552: by hash, unchecked
    assert marshal.loads(content[16:]).co_filename == "/app/good.py"  # noqa: S302 - written by this test


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_two_builds_give_the_same_bytes_and_the_second_only_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "app"
    (app / "__pycache__").mkdir(parents=True)
    (app / "__pycache__" / "x.pyc").write_text("")
    (app / "main.py").write_text("print(1)\n")
    (app / "link").symlink_to("main.py")
    archives = []
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        archives.append(python.build_python_image(["six"], name="localhost/t:1", add=[Addition(app, "/app")]))
    assert archives[0].read_bytes() == archives[1].read_bytes()
    made = archives[1].stat().st_ino
    again = python.build_python_image(["six"], name="localhost/t:1", add=[Addition(app, "/app")])
    assert (again, again.stat().st_ino) == (archives[1], made)
    names = {}
    with tarfile.open(again) as outer:
        layers = json.load(outer.extractfile("manifest.json"))[0]["Layers"]
        for layer in layers:
            with tarfile.open(fileobj=outer.extractfile(layer)) as tar:
                names |= {member.name: member for member in tar}
    assert len(layers) == 4
    assert names["app/link"].linkname == "main.py"
    assert "app/__pycache__" not in names
    assert names["usr/local/bin/python3"].linkname == str(python._program())
    assert any(name.endswith("/site-packages/six.py") for name in names)
    assert not any("/ensurepip/" in name or "/test/test_" in name for name in names)
