"""What is read from a backend without a process."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provisioner.engine.location import locate
from provisioner.engine.state import STACKS, StateReader, lock_folder
from provisioner.engine.store import Store
from provisioner.errors import PermanentError, TransientError

if TYPE_CHECKING:
    from conftest import Backend


def test_an_empty_backend(backend: Backend) -> None:
    assert list(backend.state.stacks()) == []
    assert backend.state.checkpoint("a") is None
    assert not backend.state.exists("a")
    assert backend.state.locks("a") == []
    assert backend.files() == set()


def test_only_checkpoints_are_stacks(backend: Backend) -> None:
    backend.stack("b")
    backend.stack("a-1")
    backend.put(f"{STACKS}/c.json.gz", gzip.compress(b"{}"))
    for other in ("b.json.bak", "b.json.last", "b.json.pulumi-tags", "b.json.attrs", "b.json.18b2.tmp", "notes.txt"):
        backend.put(f"{STACKS}/{other}", "")
    (backend.root / STACKS / "d.json").mkdir()
    backend.put(".pulumi/stacks/another-project/x.json", "")
    assert list(backend.state.stacks()) == ["a-1", "b", "c"]


def test_a_listing_reads_no_checkpoint(backend: Backend) -> None:
    backend.put(f"{STACKS}/damaged.json", "{")
    before = datetime.now(UTC)
    (entry,) = backend.state.entries()
    assert entry.name == "damaged"
    assert entry.modified is not None
    assert abs((entry.modified - before).total_seconds()) < 60


def test_a_damaged_checkpoint_is_named_with_the_way_out(backend: Backend) -> None:
    path = backend.put(f"{STACKS}/a.json", '{"version": 3, "chec')
    with pytest.raises(PermanentError, match="checkpoint of stack a cannot be read") as caught:
        backend.state.checkpoint("a")
    assert caught.value.reason == "StateUnreadable"
    assert str(path) in caught.value.hint
    assert backend.state.exists("a")


def test_a_compressed_checkpoint_is_found(backend: Backend) -> None:
    content = backend.stack("a").read_bytes()
    (backend.root / STACKS / "a.json").unlink()
    backend.put(f"{STACKS}/a.json.gz", gzip.compress(content))
    checkpoint = backend.state.checkpoint("a")
    assert checkpoint is not None
    assert checkpoint.engine == "v3.274.1"


def test_locks_are_read(backend: Backend) -> None:
    backend.lock("a", pid=12, hostname="elsewhere", username="x", timestamp="2026-11-30T13:39:11.249795358Z")
    (lock,) = backend.state.locks("a")
    assert (lock.pid, lock.host, lock.user) == (12, "elsewhere", "x")
    assert str(lock) == "process 12 of x@elsewhere since 2026-11-30T13:39:11+00:00"


def test_a_damaged_lock_is_still_a_lock(backend: Backend) -> None:
    backend.put(f"{lock_folder('a')}/u.json", "")
    (lock,) = backend.state.locks("a")
    assert (lock.pid, lock.host) == (0, "unknown")


def test_a_backend_that_only_the_cli_can_read() -> None:
    deployment = {"manifest": {"time": "2026-05-09T07:29:33Z", "version": "v3"}, "resources": []}
    answers: dict[str, Any] = {
        "stack ls": [{"name": "organization/data-service/a", "lastUpdate": "2026-05-09T07:29:33.000Z"}, {"name": "b"}],
        "stack export": {"version": 3, "deployment": deployment},
    }
    reader = StateReader(None, lambda words: json.dumps(answers[" ".join(words[:2])]))
    assert not reader.direct
    assert [entry.name for entry in reader.entries()] == ["a", "b"]
    assert reader.exists("a")
    assert reader.checkpoint("c") is None
    checkpoint = reader.checkpoint("a")
    assert checkpoint is not None
    assert checkpoint.modified == datetime(2026, 5, 9, 7, 29, 33, tzinfo=UTC)
    assert reader.locks("a") == []


@pytest.mark.parametrize(
    ("url", "protocol", "root", "options"),
    [
        ("file:///var/state?metadata=skip", "file", "/var/state", {}),
        ("s3://bucket/pre/fix", "s3", "bucket/pre/fix", {"client_kwargs": {}}),
        (
            "s3://bucket?region=eu-west-1&endpoint=minio:9000&disableSSL=true&s3ForcePathStyle=true&profile=p",
            "s3",
            "bucket",
            {
                "client_kwargs": {"region_name": "eu-west-1", "endpoint_url": "http://minio:9000"},
                "profile": "p",
                "config_kwargs": {"s3": {"addressing_style": "path"}},
            },
        ),
        ("gs://bucket/p/", "gs", "bucket/p", {}),
        ("azblob://container/p?storage_account=acc", "abfs", "container/p", {"account_name": "acc", "anon": False}),
    ],
)
def test_backends_that_are_read_directly(
    url: str, protocol: str, root: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_CREDENTIALS", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    location = locate(url)
    assert location is not None
    assert (location.protocol, location.root, location.options) == (protocol, root, options)


@pytest.mark.parametrize("url", ["https://api.pulumi.com", "postgres://user@host/db"])
def test_backends_that_are_not(url: str) -> None:
    assert locate(url) is None


def test_keys_of_clouds_are_found_where_the_engine_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CREDENTIALS", '{"type": "service_account"}')
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acc")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "key")
    gs, azure = locate("gs://b"), locate("azblob://c")
    assert gs is not None
    assert gs.options == {"token": {"type": "service_account"}}
    assert azure is not None
    assert azure.options == {"account_name": "acc", "account_key": "key", "anon": False}


def test_a_bucket_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    location = locate("s3://bucket/x?endpoint=http://127.0.0.1:9&region=us-east-1")
    assert location is not None
    reader = StateReader(Store(location), lambda _: "")
    with pytest.raises(TransientError, match="cannot be reached") as caught:
        reader.checkpoint("a")
    assert caught.value.reason == "StateUnavailable"


def test_the_kept_checkpoint_costs_no_space(backend: Backend, tmp_path: Path) -> None:
    path = backend.stack("a")
    backend.records.keep("a")
    kept = Path(f"{path}.last")
    assert kept.samefile(path)
    backend.store.write(f"{STACKS}/a.json", b"new")
    assert kept.read_bytes() != b"new"


def test_what_a_killed_writer_left_is_a_lock_too(backend: Backend) -> None:
    """The engine takes every file of that folder for one, whatever its name."""
    finished = backend.lock("a", pid=4711)
    unfinished = finished.rename(finished.with_name(f"{finished.name}.18ece687da6c1df0.tmp"))
    (lock,) = backend.state.locks("a")
    assert (lock.pid, lock.unfinished) == (4711, False)
    unfinished.write_bytes(b"")
    (lock,) = backend.state.locks("a")
    assert lock.unfinished
    backend.records.unlock(lock)
    assert backend.state.locks("a") == []
