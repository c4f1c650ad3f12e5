"""Files that name services: folders, stdin, and every problem at once."""

import io
from pathlib import Path

import pytest

from provisioner.cli.files import read_documents
from provisioner.errors import SpecError, UsageError

GOOD = """
apiVersion: data-service/v1
metadata: {name: graph}
spec: {image: a, ports: [{name: grpc, port: 9000}]}
"""


def write(folder: Path, **files: str) -> list[Path]:
    paths = [folder / f"{name}.yaml" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.write_text(text)
    return paths


def test_folders_are_read_in_order_of_their_names(tmp_path: Path):
    write(tmp_path, b=GOOD.replace("graph", "second"), a=GOOD.replace("graph", "first"))
    (tmp_path / "notes.txt").write_text("not a service")
    assert [document.metadata.name for document in read_documents([tmp_path])] == ["first", "second"]


def test_stdin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD))
    assert len(read_documents([Path("-")])) == 1


def test_the_problems_of_all_files_are_told_together(tmp_path: Path):
    paths = write(tmp_path, a=GOOD.replace("image", "imgae"), b=GOOD, c=GOOD.replace("graph", "Graph"))
    with pytest.raises(SpecError) as caught:
        read_documents(paths)
    told = [str(problem) for problem in caught.value.problems]
    assert any("a.yaml: spec.imgae" in line and "did you mean image?" in line for line in told)
    assert any("c.yaml: metadata.name" in line for line in told)
    assert not any("b.yaml" in line for line in told)


def test_the_problems_of_one_file_name_it(tmp_path: Path):
    (path,) = write(tmp_path, a=GOOD.replace("image", "imgae"))
    with pytest.raises(SpecError) as caught:
        read_documents([path])
    assert caught.value.source == str(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None):
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.yaml"):
        read_documents([path])


def test_an_empty_folder(tmp_path: Path):
    with pytest.raises(UsageError, match="no file"):
        read_documents([tmp_path])
