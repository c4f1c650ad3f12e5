"""What operations do and what they cost: processes, changes, outputs, traces."""

from __future__ import annotations

import gc
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulumi
import pytest

from provisioner.engine import Engine
from provisioner.errors import PermanentError, RefusedError
from provisioner.settings import Settings

if TYPE_CHECKING:
    from conftest import Backend, Cluster, Service


def test_a_life_costs_the_processes_that_were_promised(
    service: Service, make_service: Callable[..., Service], cluster: Cluster, processes: Callable[[], list[str]]
) -> None:
    first = make_service()
    first.stack.up(first.program())
    assert processes() == ["whoami", "up --yes"], "the first one in a backend"
    first.stack.destroy()
    assert cluster.gone(first.identity)
    processes()

    assert not service.stack.exists()
    created = service.stack.up(service.program())
    assert processes() == ["up --yes"]
    assert {change.op for change in created.changes.changed} == {"create"}
    assert created.outputs["dnsName"] == service.identity.dns_name()

    before = cluster.uids(service.identity)
    assert set(before) == {"Service", "StatefulSet"}
    repeated = service.stack.up(service.program())
    assert processes() == ["up --yes"]
    assert repeated.changes.changed == ()
    assert cluster.uids(service.identity) == before

    state = service.stack._engine.state
    checkpoint = state.checkpoint(service.identity.stack)
    assert checkpoint is not None
    assert checkpoint.outputs == created.outputs
    assert checkpoint.component_inputs["identity"]["stack"] == service.identity.stack
    assert list(state.stacks()) == [service.identity.stack]
    assert state.locks(service.identity.stack) == []
    assert service.stack.exists()
    assert processes() == []

    service.stack.destroy()
    assert processes() == ["destroy --remove"]
    assert cluster.gone(service.identity)
    service.stack.destroy()
    assert not service.stack.exists()
    assert processes() == []


def test_an_update_is_made_in_place_and_names_its_fields(service: Service, cluster: Cluster) -> None:
    service.stack.up(service.program())
    before = cluster.uids(service.identity)
    expected = service.stack.preview(service.program(replicas=3))
    assert cluster.replicas(service.identity) == 1
    done = service.stack.up(service.program(replicas=3)).changes
    assert cluster.replicas(service.identity) == 3
    assert cluster.uids(service.identity) == before
    assert str(done) == str(expected)
    (change,) = (change for change in done.changed if change.type.endswith("StatefulSet"))
    assert change.op == "update"
    assert "spec.replicas" in change.fields


def test_a_replacement_is_told_before_and_then_made(service: Service, cluster: Cluster) -> None:
    service.stack.up(service.program(podManagementPolicy="Parallel"))
    before = cluster.uids(service.identity)
    expected = service.stack.preview(service.program(podManagementPolicy="OrderedReady"))
    (change,) = (change for change in expected.changed if change.type.endswith("StatefulSet"))
    assert change.op == "replace"
    assert "spec.podManagementPolicy" in change.fields
    assert cluster.uids(service.identity) == before

    service.stack.up(service.program(podManagementPolicy="OrderedReady"))
    after = cluster.uids(service.identity)
    assert after["Service"] == before["Service"]
    assert after["StatefulSet"] != before["StatefulSet"]
    found = cluster.apps.read_namespaced_stateful_set(service.identity.service, service.identity.namespace)
    assert found.spec.pod_management_policy == "OrderedReady"
    assert found.metadata.deletion_timestamp is None


def test_a_preview_of_what_does_not_exist_leaves_nothing(service: Service, cluster: Cluster, backend: Backend) -> None:
    changes = service.stack.preview(service.program())
    assert {change.op for change in changes.changed} == {"create"}
    assert cluster.uids(service.identity) == {}
    assert not service.stack.exists()
    assert backend.of(service.identity.stack) == []


def test_what_somebody_else_changed_or_deleted_is_put_right(service: Service, cluster: Cluster) -> None:
    service.stack.up(service.program(replicas=2))
    name, namespace = service.identity.service, service.identity.namespace
    cluster.apps.patch_namespaced_stateful_set(name, namespace, {"spec": {"replicas": 5}}, field_manager="somebody")
    cluster.core.delete_namespaced_service(name, namespace)
    done = service.stack.up(service.program(replicas=2), refresh=True)
    assert {change.type.rsplit(":", 1)[-1] for change in done.changes.changed} >= {"Service", "StatefulSet"}
    assert cluster.replicas(service.identity) == 2
    assert set(cluster.uids(service.identity)) == {"Service", "StatefulSet"}


def test_a_refresh_only_looks(service: Service, cluster: Cluster) -> None:
    service.stack.up(service.program())
    cluster.core.delete_namespaced_service(service.identity.service, service.identity.namespace)
    service.stack.refresh()
    checkpoint = service.stack._engine.state.checkpoint(service.identity.stack)
    assert checkpoint is not None
    assert [item.type for item in checkpoint.objects] == ["kubernetes:apps/v1:StatefulSet"]
    assert set(cluster.uids(service.identity)) == {"StatefulSet"}


def test_nothing_of_a_destroyed_stack_is_left(service: Service, backend: Backend) -> None:
    service.stack.up(service.program())
    service.stack.up(service.program(replicas=2))
    service.stack.destroy()
    assert backend.of(service.identity.stack) == []


def test_history_does_not_grow(service: Service, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.engine.operation._HISTORY_KEPT", 2)

    def program() -> None:
        pulumi.export("x", 1)

    for _ in range(3):
        service.stack.up(program)
    history = [path for path in backend.files() if path.name.endswith(".history.json")]
    assert len(history) == 2


def test_a_forgotten_stack_leaves_the_cluster_as_it_is_and_can_be_had_again(
    service: Service, cluster: Cluster, backend: Backend
) -> None:
    service.stack.up(service.program())
    before = cluster.uids(service.identity)
    service.stack.forget()
    assert backend.of(service.identity.stack) == []
    assert cluster.uids(service.identity) == before
    # Its objects are there and ours: they are taken back, not made again.
    service.stack.up(service.program(replicas=2))
    assert cluster.uids(service.identity) == before
    assert cluster.replicas(service.identity) == 2


def test_no_secret_stands_in_the_backend(service: Service, settings: Settings, backend: Backend) -> None:
    def program() -> None:
        pulumi.export("key", pulumi.Output.secret("a-very-secret-value"))

    result = service.stack.up(program)
    assert result.outputs["key"] == "[secret]"
    passphrase = settings.passphrase_file.read_text().strip()
    content = b"".join(path.read_bytes() for path in backend.files())
    assert b"key" in content
    assert b"a-very-secret-value" not in content
    assert passphrase.encode() not in content
    assert stat.S_IMODE(settings.passphrase_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(backend.folder.stat().st_mode) == 0o700

    settings.passphrase_file.write_text("another")
    with pytest.raises(PermanentError) as caught:
        Engine(settings).stack(service.identity.stack).up(program)
    assert caught.value.reason == "PassphraseWrong"
    assert "another" not in str(caught.value)


def test_errors_of_the_program_are_its_own(service: Service) -> None:
    def refuses() -> None:
        raise RefusedError("that is somebody else's", reason="NotOurs")

    def fails() -> None:
        raise ValueError("boom")

    with pytest.raises(RefusedError, match="somebody else's"):
        service.stack.up(refuses)
    with pytest.raises(PermanentError, match="ValueError: boom") as caught:
        service.stack.up(fails)
    assert caught.value.reason == "ProgramFailed"
    assert isinstance(caught.value.__cause__, ValueError)


def test_nothing_grows_with_operations(service: Service, wait: Callable[..., Any]) -> None:
    def program() -> None:
        pulumi.export("x", 1)

    def descriptors() -> int:
        gc.collect()
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    for _ in range(2):
        service.stack.up(program)
    threads, files = threading.active_count(), descriptors()
    # What grows does so each time.
    for _ in range(4):
        service.stack.up(program)
    wait(lambda: threading.active_count() <= threads)
    wait(lambda: descriptors() <= files)
