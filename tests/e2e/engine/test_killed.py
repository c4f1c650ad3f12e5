"""Whatever is killed, cancelled or late: no lock stays, and the next operation goes on without a question."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulumi
import pytest
import yaml

from provisioner.engine import Cancellation, Engine
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import LABEL_STACK
from provisioner.settings import Settings

if TYPE_CHECKING:
    from conftest import Backend, Cluster, Killer, Service

# A server of its own, which ends its engine, and itself too if told so, in the middle of an operation.
SERVER = """
import asyncio, os, signal, sys
from pathlib import Path
from provisioner.engine import Engine
from provisioner.engine.process import session_members
from provisioner.errors import TransientError
from provisioner.settings import Settings

stack, engine_dies, server_dies = sys.argv[1], "engine" in sys.argv, "server" in sys.argv

async def program():
    tasks = Path("/proc/self/task").iterdir()
    leaders = {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
    for pid in [member for leader in leaders for member in session_members(leader)]:
        if engine_dies:
            os.kill(pid, signal.SIGKILL)
    if server_dies:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.Event().wait()

try:
    Engine(Settings()).stack(stack).up(program)
except TransientError as error:
    print(error.reason)
"""


def serve(service: Service, settings: Settings, *dies: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | {
        "PROVISIONER_BACKEND": settings.backend,
        "PROVISIONER_PASSPHRASE_FILE": str(settings.passphrase_file),
    }
    command = [sys.executable, "-c", SERVER, service.identity.stack, *dies]
    return subprocess.run(command, env=environment, timeout=120, stdout=subprocess.PIPE, text=True)


def locks(service: Service) -> list[Any]:
    return service.stack._engine.state.locks(service.identity.stack)


@pytest.mark.parametrize("kind", ["DataService", "Service", "StatefulSet"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_in_the_middle_of_a_create(
    service: Service, cluster: Cluster, killer: type[Killer], kind: str, moment: str
) -> None:
    kill = killer(f":{kind}", moment)
    with pytest.raises(TransientError, match="ended by signal 9") as caught:
        service.stack.up(kill.hold(service.program()), on_event=kill)
    assert caught.value.reason == "EngineKilled"
    assert locks(service) == []

    service.stack.up(service.program())
    before = cluster.uids(service.identity)
    assert set(before) == {"Service", "StatefulSet"}
    checkpoint = service.stack._engine.state.checkpoint(service.identity.stack)
    assert checkpoint is not None
    assert checkpoint.pending_operations == ()
    assert service.stack.up(service.program()).changes.changed == ()
    assert cluster.uids(service.identity) == before
    service.stack.destroy()
    assert cluster.gone(service.identity)


@pytest.mark.parametrize("kind", ["Service", "StatefulSet"])
def test_killed_in_the_middle_of_a_destroy(service: Service, cluster: Cluster, killer: type[Killer], kind: str) -> None:
    service.stack.up(service.program())
    kill = killer(f":{kind}", "before")
    # Nothing can hold a destroy: it may have been done when the signal came, and what counts is what is left.
    with suppress(TransientError):
        service.stack.destroy(on_event=kill)
    assert kill.fired
    assert locks(service) == []
    service.stack.destroy()
    assert cluster.gone(service.identity)
    assert not service.stack.exists()


def export_one() -> None:
    pulumi.export("x", 1)


def test_the_server_and_its_engine_are_killed(service: Service, settings: Settings) -> None:
    assert serve(service, settings, "engine", "server").returncode == -signal.SIGKILL
    # The holder of the lock is dead: nobody has to wait.
    assert len(locks(service)) == 1
    assert service.stack.up(export_one).outputs == {"x": 1}


def test_the_server_alone_is_killed(service: Service, settings: Settings, wait: Callable[..., Any]) -> None:
    assert serve(service, settings, "server").returncode == -signal.SIGKILL

    def up() -> Any:
        # The engine lives on until it misses its program. While it does, its lock counts.
        try:
            return service.stack.up(export_one)
        except TransientError as error:
            if error.reason != "StackLocked":
                raise
            return None

    assert wait(up, 120).outputs == {"x": 1}


def test_a_server_whose_engine_was_killed_can_end(service: Service, settings: Settings) -> None:
    ended = serve(service, settings, "engine")
    assert ended.returncode == 0
    assert "EngineKilled" in ended.stdout.splitlines()


def test_no_program_outlives_its_engine(service: Service, killer: type[Killer], wait: Callable[..., Any]) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TransientError, match="ended by signal 9"):
        service.stack.up(waits_for_ever, on_event=killer(":Stack", "before"))
    wait(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("engine-")])


class Pending:
    """Puts a stack's StatefulSet among the pending operations, as a kill between request and record leaves it."""

    def __init__(self, service: Service, backend: Backend) -> None:
        self.path = backend.checkpoint(service.identity.stack)
        document = json.loads(self.path.read_text())
        latest = document["checkpoint"]["latest"]
        (wanted,) = (item for item in latest["resources"] if item["type"].endswith("StatefulSet"))
        latest["resources"].remove(wanted)
        resource = {key: value for key, value in wanted.items() if key not in {"id", "outputs", "created", "modified"}}
        latest["pending_operations"] = [{"resource": resource, "type": "creating"}]
        self.path.write_text(json.dumps(document))


def test_a_create_that_nobody_recorded_is_adopted(service: Service, cluster: Cluster, backend: Backend) -> None:
    service.stack.up(service.program())
    before = cluster.uids(service.identity)
    Pending(service, backend)
    assert service.stack.up(service.program()).changes.changed == ()
    assert cluster.uids(service.identity) == before


def test_a_create_that_nobody_recorded_is_destroyed(service: Service, cluster: Cluster, backend: Backend) -> None:
    service.stack.up(service.program())
    Pending(service, backend)
    service.stack.destroy()
    assert cluster.gone(service.identity)


def test_a_create_that_did_not_happen_is_made(service: Service, cluster: Cluster, backend: Backend) -> None:
    service.stack.up(service.program())
    before = cluster.uids(service.identity)
    Pending(service, backend)
    cluster.apps.delete_namespaced_stateful_set(service.identity.service, service.identity.namespace)
    service.stack.up(service.program())
    after = cluster.uids(service.identity)
    assert after["Service"] == before["Service"]
    assert after["StatefulSet"] != before["StatefulSet"]


def test_somebody_elses_object_is_not_adopted(service: Service, cluster: Cluster, backend: Backend) -> None:
    service.stack.up(service.program())
    Pending(service, backend)
    name, namespace = service.identity.service, service.identity.namespace
    # As if another had made it under that name meanwhile.
    cluster.apps.patch_namespaced_stateful_set(name, namespace, {"metadata": {"labels": {LABEL_STACK: "another"}}})
    service.stack.destroy()
    left = cluster.apps.read_namespaced_stateful_set(name, namespace)
    assert left.metadata.deletion_timestamp is None
    assert not service.stack.exists()


def test_a_refresh_that_fails_leaves_it_to_be_settled(
    service: Service, cluster: Cluster, settings: Settings, backend: Backend
) -> None:
    service.stack.up(service.program())
    before = cluster.uids(service.identity)
    Pending(service, backend)
    away = settings.model_copy(update={"kubeconfig": unreachable(settings)})
    with pytest.raises(TransientError) as caught:
        service.with_engine(Engine(away)).stack.up(service.program())
    assert caught.value.reason == "ClusterUnreachable"
    cluster.apps.delete_namespaced_stateful_set(service.identity.service, service.identity.namespace)
    service.stack.up(service.program())
    after = cluster.uids(service.identity)
    assert set(after) == set(before)
    assert after["StatefulSet"] != before["StatefulSet"]


def unreachable(settings: Settings) -> Path:
    assert settings.kubeconfig is not None
    document = yaml.safe_load(settings.kubeconfig.read_text())
    for item in document["clusters"]:
        item["cluster"]["server"] = "https://127.0.0.1:1"
    path = settings.passphrase_file.with_name("unreachable.yaml")
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_cluster_that_is_away_keeps_the_record(service: Service, cluster: Cluster, settings: Settings) -> None:
    service.stack.up(service.program())
    away = Engine(settings.model_copy(update={"kubeconfig": unreachable(settings)}))
    with pytest.raises(TransientError) as caught:
        service.with_engine(away).stack.destroy()
    assert caught.value.reason == "ClusterUnreachable"
    checkpoint = service.stack._engine.state.checkpoint(service.identity.stack)
    assert checkpoint is not None
    assert len(checkpoint.objects) == 2
    assert locks(service) == []
    service.stack.destroy()
    assert cluster.gone(service.identity)


def test_cancelled_gently(service: Service, cluster: Cluster) -> None:
    cancellation = Cancellation()

    async def program() -> None:
        cancellation.cancel()
        service.program()()
        # It does not return: the engine could be done before it hears of it.
        await asyncio.Event().wait()

    with pytest.raises(TransientError) as caught:
        service.stack.up(program, cancellation=cancellation)
    assert caught.value.reason == "Cancelled"
    assert locks(service) == []
    service.stack.destroy()
    assert not service.stack.exists()


def test_cancelled_by_name(service: Service) -> None:
    inside = threading.Event()

    async def program() -> None:
        inside.set()
        # It does not return: the engine could be done before it hears of it.
        await asyncio.Event().wait()

    result: list[BaseException] = []

    def up() -> None:
        try:
            service.stack.up(program)
        except TransientError as error:
            result.append(error)

    assert not service.stack.cancel()
    thread = threading.Thread(target=up)
    thread.start()
    assert inside.wait(120)
    assert service.stack.cancel()
    thread.join(120)
    (error,) = result
    assert isinstance(error, TransientError)
    assert error.reason == "Cancelled"
    assert locks(service) == []


def test_cancelled_before_it_began(service: Service) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(TransientError) as caught:
        service.stack.up(lambda: None, cancellation=cancellation)
    assert caught.value.reason == "Cancelled"
    assert not service.stack.exists()


def test_the_deadline_ends_what_hangs(service: Service, settings: Settings) -> None:
    go_on = threading.Event()
    impatient = Engine(settings.model_copy(update={"cancel_grace": 1.0})).stack(service.identity.stack)
    service.stack.up(lambda: None)
    try:
        with pytest.raises(TransientError, match="did not end within 3 s") as caught:
            impatient.up(lambda: assert_waited(go_on), deadline=3.0)
    finally:
        go_on.set()
    assert caught.value.reason == "DeadlineExceeded"
    assert locks(service) == []
    service.stack.up(lambda: None)


def assert_waited(event: threading.Event) -> None:
    assert event.wait(120)


def test_a_checkpoint_cut_short(service: Service, cluster: Cluster, backend: Backend) -> None:
    service.stack.up(service.program())
    before = cluster.uids(service.identity)
    path = backend.checkpoint(service.identity.stack)
    path.write_bytes(path.read_bytes()[:1000])
    service.stack.up(service.program())
    assert cluster.uids(service.identity) == before
    assert service.stack.up(service.program()).changes.changed == ()

    # Both damaged, as a full disk leaves them: there is still the one that the last operation found.
    for damaged in (path, Path(f"{path}.bak")):
        damaged.write_bytes(b"")
    service.stack.destroy()
    assert cluster.gone(service.identity)


def test_a_record_beyond_repair(service: Service, cluster: Cluster, backend: Backend) -> None:
    service.stack.up(service.program())
    path = backend.checkpoint(service.identity.stack)
    for damaged in path.parent.glob(f"{path.name}*"):
        damaged.write_bytes(b"{")
    with pytest.raises(PermanentError) as caught:
        service.stack.up(service.program())
    assert caught.value.reason == "StateUnreadable"
    assert "forget" in caught.value.hint
    service.stack.forget()
    service.stack.up(service.program())
    assert set(cluster.uids(service.identity)) == {"Service", "StatefulSet"}


def test_a_stack_whose_init_was_killed(service: Service, cluster: Cluster, backend: Backend) -> None:
    service.stack.up(lambda: None)
    name = service.identity.stack
    path = backend.checkpoint(name)
    path.write_text(json.dumps({"version": 3, "checkpoint": {"stack": f"organization/data-service/{name}"}}))
    service.stack.up(service.program())
    assert set(cluster.uids(service.identity)) == {"Service", "StatefulSet"}
    service.stack.destroy()
