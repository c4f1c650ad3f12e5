import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from provisioner.errors import UsageError
from provisioner.sandbox.images.archive import ImageConfig, image_names, write_archive
from provisioner.sandbox.images.layer import Store, Tree


def archive(folder: Path, name: str = "localhost/tool:1", text: str = "x") -> Path:
    tree = Tree()
    tree.text("/file", text)
    store = Store(folder / "store")
    return write_archive(name, [store.pack(tree)], ImageConfig(("/file",)), store, folder / "out")


def test_every_blob_is_what_its_name_says_and_both_formats_agree(tmp_path: Path) -> None:
    with tarfile.open(archive(tmp_path)) as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    for name, data in content.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(data).hexdigest() == name.rpartition("/")[2]
    index, (docker,) = json.loads(content["index.json"]), json.loads(content["manifest.json"])
    manifest = json.loads(content["blobs/sha256/" + index["manifests"][0]["digest"].removeprefix("sha256:")])
    assert [f"blobs/sha256/{layer['digest'].removeprefix('sha256:')}" for layer in manifest["layers"]] == docker[
        "Layers"
    ]
    config = json.loads(content[docker["Config"]])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["config"]["Cmd"] == ["/file"]


def test_the_same_content_gives_the_same_file(tmp_path: Path) -> None:
    one, two = archive(tmp_path / "a"), archive(tmp_path / "b")
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()


def test_an_older_archive_of_the_same_name_goes(tmp_path: Path) -> None:
    old = archive(tmp_path)
    other = archive(tmp_path, name="localhost/tool-other:1")
    new = archive(tmp_path, text="y")
    assert new != old
    assert sorted((tmp_path / "out").iterdir()) == sorted([new, other])


def test_names_are_read_back(tmp_path: Path) -> None:
    assert image_names(archive(tmp_path)) == ["localhost/tool:1"]


def tar_of(path: Path, files: dict[str, object]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, value in files.items():
            data = json.dumps(value).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_docker_archives_have_short_names_and_may_be_gzipped(tmp_path: Path) -> None:
    plain = tar_of(tmp_path / "a.tar", {"manifest.json": [{"RepoTags": ["busybox:1"]}, {"RepoTags": None}]})
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert image_names(plain) == image_names(packed) == ["docker.io/library/busybox:1"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"other": 1}, "NotAnImage"),
        ({"manifest.json": [{"RepoTags": None}]}, "NamelessImage"),
        ({"index.json": {"manifests": [{"digest": "sha256:0"}]}}, "NamelessImage"),
        ({"manifest.json": {"a": 1}}, "NotAnImage"),
        ({"index.json": [1]}, "NotAnImage"),
        ({"manifest.json": [{"RepoTags": ["Bad Name"]}]}, "InvalidImageName"),
    ],
)
def test_other_tars_are_refused(tmp_path: Path, files: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        image_names(tar_of(tmp_path / "x.tar", files))
    assert caught.value.reason == reason


def test_other_files_are_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(archive(tmp_path).read_bytes()[:700])
    text = tmp_path / "text"
    text.write_text("hello")
    for path in (cut, text, tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError) as caught:
            image_names(path)
        assert str(path) in str(caught.value)
