"""What the engine's tests share: an engine with a backend of its own, a namespace, and eyes on the cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from pulumi.automation import EngineEvent

from provisioner import toolchain
from provisioner.engine import Engine, Stack
from provisioner.engine.process import session_members
from provisioner.engine.state import STACKS
from provisioner.identity import LABEL_STACK, Identity, for_name
from provisioner.resources.component import program
from provisioner.sealing import Sealer
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec

if TYPE_CHECKING:
    from provisioner.sandbox import Sandbox

# Nothing listens there, so no pod of these tests ever starts, and no registry is asked.
IMAGE = "127.0.0.1:5999/missing:1"


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll until something comes true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)
    return found


class Cluster:
    """Looks at the objects of one namespace with the Kubernetes client."""

    def __init__(self, kubeconfig: Path, context: str) -> None:
        api = config.new_client_from_config(str(kubeconfig), context)
        self.core, self.apps, self.admission = (
            client.CoreV1Api(api),
            client.AppsV1Api(api),
            client.AdmissionregistrationV1Api(api),
        )
        self.namespace = f"engine-{uuid.uuid4().hex[:8]}"

    def uids(self, identity: Identity) -> dict[str, str]:
        """Kind -> uid of the objects that carry the stack's label; fails if there are two of a kind."""
        found: dict[str, str] = {}
        selector = {"label_selector": f"{LABEL_STACK}={identity.stack}"}
        for kind, items in (
            ("Service", self.core.list_namespaced_service(identity.namespace, **selector).items),
            ("StatefulSet", self.apps.list_namespaced_stateful_set(identity.namespace, **selector).items),
        ):
            assert len(items) <= 1, f"two objects of kind {kind}"
            if items:
                found[kind] = items[0].metadata.uid
        return found

    def gone(self, identity: Identity) -> bool:
        """Wait until nothing carries the stack's label: a deletion in the foreground ends after the destroy."""
        return bool(wait_for(lambda: not self.uids(identity)))

    def replicas(self, identity: Identity) -> int:
        found = self.apps.read_namespaced_stateful_set(identity.service, identity.namespace)
        return int(found.spec.replicas)


@contextmanager
def suppress_not_found() -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


@dataclass
class Service:
    """One data service of a test."""

    identity: Identity
    settings: Settings
    stack: Stack

    def program(self, **spec: Any) -> Callable[[], None]:
        values = {"image": IMAGE, "ports": [{"name": "grpc", "port": 9000}], "replicas": 1} | spec
        return program(self.identity, DataServiceSpec.model_validate(values), Sealer.of(self.settings))

    def with_engine(self, engine: Engine) -> Service:
        return replace(self, stack=engine.stack(self.identity.stack))


@pytest.fixture(scope="session")
def cluster(sandbox: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(sandbox.kubeconfig, sandbox.context)
    cluster.core.create_namespace({"metadata": {"name": cluster.namespace}})
    yield cluster
    cluster.core.delete_namespace(cluster.namespace)


@pytest.fixture
def engine(settings: Settings) -> Engine:
    return Engine(settings)


@pytest.fixture
def make_service(settings: Settings, engine: Engine, cluster: Cluster) -> Iterator[Callable[..., Service]]:
    """Makes services with names of their own; what is left of them is deleted in the end."""
    made: list[Service] = []

    def make(*, namespace: str | None = None, name: str | None = None) -> Service:
        chosen = name or f"graph-{uuid.uuid4().hex[:8]}"
        identity = for_name("project", "development", namespace=namespace or cluster.namespace, name=chosen)
        made.append(Service(identity, settings, engine.stack(identity.stack)))
        return made[-1]

    yield make
    for service in made:
        for delete in (cluster.apps.delete_namespaced_stateful_set, cluster.core.delete_namespaced_service):
            with suppress_not_found():
                delete(service.identity.service, service.identity.namespace)


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    return make_service()


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The verbs of the processes that were really started: a program that takes the CLI's place writes them down."""
    log, shim, real = tmp_path / "processes", tmp_path / "pulumi", toolchain.locate("pulumi")
    log.touch()
    shim.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {real.path} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setattr("provisioner.engine.cli.toolchain.locate", lambda _name: replace(real, path=shim))

    def started() -> list[str]:
        lines = log.read_text().splitlines()
        log.write_text("")
        options = "--non-interactive --color never "
        assert all(line.startswith(options) for line in lines), lines
        return [" ".join(line.removeprefix(options).split()[:2]) for line in lines]

    return started


def cli_processes() -> list[int]:
    """The CLI processes that this process has started and that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and int(fields[3]) == int(entry.name):
                found.append(int(entry.name))
    return found


class Killer:
    """Kills the CLI with all that it started, at the first event of a kind about a type of resource."""

    def __init__(self, kind: str, moment: str) -> None:
        self._kind, self._moment, self._fired = kind, moment, threading.Event()

    @property
    def fired(self) -> bool:
        return self._fired.is_set()

    def hold(self, program: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """A program that does not return before the kill, so that the engine cannot be done before it."""

        async def held() -> None:
            program()
            await asyncio.to_thread(self._fired.wait, 120)

        return held

    def __call__(self, event: EngineEvent) -> None:
        step = event.resource_pre_event if self._moment == "before" else event.res_outputs_event
        if self.fired or step is None or not step.metadata.type.endswith(self._kind):
            return
        for leader in cli_processes():
            for pid in session_members(leader):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._fired.set()


@pytest.fixture
def killer() -> type[Killer]:
    return Killer


@pytest.fixture
def wait() -> Callable[..., Any]:
    return wait_for


class Backend:
    """The files of a test's state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def checkpoint(self, stack: str) -> Path:
        return self.folder / STACKS / f"{stack}.json"

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def of(self, stack: str) -> list[Path]:
        """Everything, folders too, that is named after a stack."""
        return [path for path in self.folder.rglob("*") if path.name.split(".")[0] == stack]


@pytest.fixture
def backend(settings: Settings) -> Backend:
    return Backend(Path(settings.backend.removeprefix("file://")))
