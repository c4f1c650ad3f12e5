import os
import tarfile
from pathlib import Path

from provisioner.sandbox.images.layer import EPOCH, Store, Tree


def tree(folder: Path, names: list[str]) -> Tree:
    made = Tree()
    for name in names:
        made.file(f"/app/{name}", folder / name)
    made.link("/bin/sh", "/bin/busybox")
    made.text("/etc/passwd", "root:x:0:0::/:/bin/sh\n")
    made.folder("/var/tmp", 0o1777)  # noqa: S108
    return made


def test_time_order_and_owner_of_the_files_do_not_matter(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    first = Store(tmp_path / "one").pack(tree(tmp_path, ["a", "b"]))
    os.utime(tmp_path / "a", (1, 1))
    second = Store(tmp_path / "two").pack(tree(tmp_path, ["b", "a"]))
    assert first == second
    with tarfile.open(Store(tmp_path / "one").blob(first.digest)) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.mtime, member.uid, member.gid) for member in members} == {(EPOCH, 0, 0)}
    assert {"app", "app/a", "bin/sh", "etc/passwd", "var/tmp"} <= {member.name for member in members}


def test_content_matters(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    store = Store(tmp_path / "store")
    before = store.pack(tree(tmp_path, ["a"]))
    (tmp_path / "a").write_text("two")
    assert store.pack(tree(tmp_path, ["a"])) != before


def test_execution_rights_are_kept_and_all_may_read(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("")
    (tmp_path / "tool").chmod(0o700)
    (tmp_path / "data").write_text("")
    (tmp_path / "data").chmod(0o600)
    made = tree(tmp_path, ["tool", "data"])
    assert made.entries["/app/tool"].mode == 0o755
    assert made.entries["/app/data"].mode == 0o644


def test_a_layer_is_packed_once_and_again_when_its_tar_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    store = Store(tmp_path / "store")
    layer = store.pack(tree(tmp_path, ["a"]))
    blob = store.blob(layer.digest)
    made = blob.stat().st_ino
    store.pack(tree(tmp_path, ["a"]))
    assert blob.stat().st_ino == made
    blob.write_bytes(b"cut off")
    assert store.pack(tree(tmp_path, ["a"])) == layer
    assert blob.stat().st_size == layer.size


def test_a_path_cannot_leave_the_image() -> None:
    made = Tree()
    made.text("/../../etc/x", "")
    assert "/etc/x" in made.entries
