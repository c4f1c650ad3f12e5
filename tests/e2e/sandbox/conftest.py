"""A cluster of this folder's own, apart from the one that all other tests share: it is broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.stream import stream

from provisioner.sandbox import Sandbox
from provisioner.sandbox.images.busybox import BUSYBOX_IMAGE

PATIENCE = 180.0


def until(what: str, condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """Wait until a condition gives something true, and return it."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not within {timeout:.0f} s"
        time.sleep(0.1)


@dataclass
class Cluster:
    """A sandbox and a client of it."""

    sandbox: Sandbox

    def __post_init__(self) -> None:
        api = config.new_client_from_config(str(self.sandbox.kubeconfig), self.sandbox.context)
        self.core = client.CoreV1Api(api)
        self.api = api

    def pod(self, name: str, command: str, **spec: Any) -> dict[str, Any]:
        container = {
            "name": "main",
            "image": spec.pop("image", BUSYBOX_IMAGE),
            "command": ["/bin/sh", "-c", command],
            "volumeMounts": spec.pop("mounts", []),
        }
        return {
            "metadata": {"name": name, "labels": {"app": spec.pop("app", name)}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
        }

    def run(self, name: str, command: str = "sleep 3600", **spec: Any) -> None:
        self.core.create_namespaced_pod("default", self.pod(name, command, **spec))

    def ready(self, name: str) -> bool:
        status = self.core.read_namespaced_pod(name, "default").status
        return any(item.type == "Ready" and item.status == "True" for item in status.conditions or [])

    def phase(self, name: str) -> str:
        return self.core.read_namespaced_pod(name, "default").status.phase

    def node_of(self, name: str) -> str:
        return self.core.read_namespaced_pod(name, "default").spec.node_name

    def log(self, name: str) -> str:
        # Parsed by the client, it is the text of a bytes literal.
        return self.core.read_namespaced_pod_log(name, "default", _preload_content=False).data.decode()

    def finished(self, name: str) -> str:
        """The log of a pod that has succeeded."""
        until(f"pod {name} ends", lambda: self.phase(name) in ("Succeeded", "Failed"))
        text = self.log(name)
        assert self.phase(name) == "Succeeded", text
        return text

    def execute(self, name: str, command: str) -> str:
        """What a command prints in a pod; nothing while the kubelet cannot be reached."""
        # The stream client puts its own transport into the API client that it is given.
        core = client.CoreV1Api(config.new_client_from_config(str(self.sandbox.kubeconfig), self.sandbox.context))
        try:
            return stream(
                core.connect_get_namespaced_pod_exec,
                name,
                "default",
                command=["/bin/sh", "-c", command],
                stdout=True,
                stderr=True,
                stdin=False,
                tty=False,
            )
        except AttributeError:
            # The client decodes the body of a refusal, and a handshake that fails has none.
            return ""

    def delete(self, *names: str) -> None:
        for name in names:
            self.core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
        for name in names:
            until(f"pod {name} is gone", lambda name=name: name not in self.pods())

    def pods(self) -> set[str]:
        return {item.metadata.name for item in self.core.list_namespaced_pod("default").items}

    def nodes(self) -> dict[str, Any]:
        return {item.metadata.name: item for item in self.core.list_node().items}


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # As below XDG_STATE_HOME, so that the command line finds it.
    return tmp_path_factory.mktemp("sb") / "provisioner" / "sandbox"


@pytest.fixture(scope="session")
def cluster(home: Path) -> Iterator[Cluster]:
    sandbox = Sandbox("test-sandbox", home=home)
    try:
        sandbox.up()
        yield Cluster(sandbox)
    finally:
        sandbox.down()


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., Any]:
    return until


@pytest.fixture
def make() -> type[Cluster]:
    return Cluster
