"""The janitor on a bucket: read by fsspec's own client for S3 over HTTP, page by page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import bucket
import pytest
from fsspec import get_filesystem_class, register_implementation
from fsspec.implementations.memory import MemoryFileSystem

from provisioner.engine import Engine
from provisioner.engine.recovery import Holder
from provisioner.errors import ProvisionerError
from provisioner.janitor.backend import Backend
from provisioner.janitor.facts import Case
from provisioner.janitor.memory import Memory
from provisioner.settings import Settings

OLD = datetime(2026, 5, 1, 7, 0, tzinfo=UTC)
STACKS, LOCKS = "state/.pulumi/stacks/data-service", "state/.pulumi/locks/organization/data-service"
HISTORY, BACKUPS = "state/.pulumi/history/data-service", "state/.pulumi/backups/data-service"
EMPTY = json.dumps({"version": 3, "checkpoint": {"latest": {"resources": []}}}).encode()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[bucket.Bucket]:
    for name, value in bucket.credentials().items():
        monkeypatch.setenv(name, value)
    with bucket.served() as made:
        yield made


@pytest.fixture
def settings(store: bucket.Bucket) -> Settings:
    return Settings(backend=store.url)


@pytest.fixture
def backend(settings: Settings) -> Backend:
    return Backend(Engine(settings), settings, lambda lock: None, backups_kept=2)


def fill(store: bucket.Bucket) -> None:
    for number in range(bucket.PAGE * 3):
        store.put(f"{STACKS}/store-{number}.json", EMPTY, OLD + timedelta(hours=number))
        store.put(f"{STACKS}/store-{number}.json.bak", EMPTY, OLD)


def test_all_stacks_are_listed_with_their_times_and_none_is_read(store, backend):
    fill(store)
    store.requests.clear()
    listing = backend.listing()
    assert {name: facts.modified for name, facts in listing.stacks.items()} == {
        f"store-{number}": OLD + timedelta(hours=number) for number in range(bucket.PAGE * 3)
    }
    assert [key for method, key in store.requests if key.endswith(".json")] == []
    assert backend.checkpoints_read == 0


@pytest.fixture
def another_client() -> Iterator[None]:
    """As Flyte 2's SDK does when it is imported."""
    before = get_filesystem_class("s3")
    register_implementation("s3", MemoryFileSystem, clobber=True)
    yield
    register_implementation("s3", before, clobber=True)


def test_the_client_is_ours_whatever_a_library_has_put_in_its_place(store, settings, another_client):
    fill(store)
    assert Backend(Engine(settings), settings, lambda lock: None, backups_kept=2).listing().stacks


def test_locks_remains_and_surplus_backups_are_found(store, backend):
    fill(store)
    lock = {"pid": 1, "username": "u", "hostname": "elsewhere", "timestamp": OLD.isoformat()}
    store.put(f"{LOCKS}/store-1/a.json", json.dumps(lock).encode())
    store.put(f"{HISTORY}/gone/gone-1.history.json", b"{}", OLD)
    store.put(f"{STACKS}/lost.json.bak", EMPTY, OLD)
    for number in range(bucket.PAGE + 1):
        store.put(f"{BACKUPS}/store-2/store-2.{number}.json", EMPTY, OLD)
    listing = backend.listing()
    assert {name: [lock.holder for lock in facts.locks] for name, facts in listing.stacks.items() if facts.locks} == {
        "store-1": [Holder.UNKNOWN]
    }
    assert listing.stacks["store-1"].locks[0].place.endswith("bucket/" + f"{LOCKS}/store-1/a.json")
    assert listing.remains == {"gone": OLD, "lost": OLD}
    assert listing.surplus == {"store-2"}

    backend.prune_backups("store-2")
    # The newest stay.
    assert store.names(f"{BACKUPS}/store-2/") == [
        f"{BACKUPS}/store-2/store-2.{number}.json" for number in range(bucket.PAGE - 1, bucket.PAGE + 1)
    ]


def test_a_checkpoint_is_read_when_it_is_asked_for(store, backend):
    fill(store)
    facts = backend.stack("store-1", OLD)
    assert facts is not None
    assert facts.checkpoint is not None
    assert facts.checkpoint.empty
    assert backend.stack("none", None) is None
    store.put(f"{STACKS}/store-1.json", b"{")
    assert "cannot be read" in backend.checkpoint("store-1").unreadable


def test_an_unfinished_destroy_is_found_in_the_history(store, backend):
    resource = {
        "urn": "urn:pulumi:a::p::kubernetes:core/v1:Service::s",
        "type": "kubernetes:core/v1:Service",
    }
    latest = {"resources": [resource | {"custom": True, "id": "ns/s"}]}
    store.put(f"{STACKS}/a.json", json.dumps({"version": 3, "checkpoint": {"latest": latest}}).encode())
    for number, document in enumerate(
        [{"kind": "update", "result": "succeeded"}, {"kind": "destroy", "result": "failed"}]
    ):
        store.put(f"{HISTORY}/a/a-{number}.history.json", json.dumps(document).encode())
        store.put(f"{HISTORY}/a/a-{number}.checkpoint.json", b"{}")
    assert backend.checkpoint("a").deleting


def test_forgotten_stacks_and_remains_leave_nothing(store, settings):
    fill(store)
    store.put(f"{HISTORY}/store-1/store-1-1.history.json", b"{}")
    engine = Engine(settings)
    engine.stack("store-1").forget()
    assert [key for key in store.names() if "store-1" in key] == []
    store.put(f"{HISTORY}/gone/gone-1.history.json", b"{}")
    engine.stack("gone").tidy()
    assert [key for key in store.names() if "gone" in key] == []
    assert len(list(engine.state.stacks())) == bucket.PAGE * 3 - 1


def test_notes_are_kept_beside_the_stacks(store, settings, make):
    memory = Memory.beside(settings.backend, "")
    cases = {f"s-{number}": Case(f"s-{number}", "OwnerEnded", make.NOW) for number in range(bucket.PAGE + 1)}
    for case in cases.values():
        memory.remember(case)
    with ThreadPoolExecutor(4) as readers:
        assert memory.cases(readers) == cases
    memory.forget("s-0")
    memory.forget("s-0")
    assert memory.case("s-0") is None
    assert store.names("state/.data-service-provisioner/janitor/")[0].endswith("/s-1.json")


def test_a_bucket_that_is_away_or_read_only_says_which_and_what_to_do(store, settings, backend):
    store.away = True
    with pytest.raises(ProvisionerError, match="bucket/state") as raised:
        backend.listing()
    assert raised.value.hint
    store.away, store.read_only = False, True
    assert backend.listing().stacks == {}
    with pytest.raises(ProvisionerError) as raised:
        Memory.beside(settings.backend, "").remember(Case("a", "OwnerEnded", OLD))
    assert raised.value.reason == "StatePermissionDenied"
    assert "right to read and write" in raised.value.hint
