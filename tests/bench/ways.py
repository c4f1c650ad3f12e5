"""Three ways to bring the same services about: this project's, the Automation API as documented, the plain client."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from provisioner import toolchain
from provisioner.cluster import ClusterClient
from provisioner.control.controller import Controller
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase
from provisioner.engine import PROJECT, Engine
from provisioner.identity import Identity, for_name
from provisioner.resources.component import program
from provisioner.resources.manifests import service_manifest, stateful_set_manifest
from provisioner.sealing import Sealer
from provisioner.settings import Settings
from provisioner.spec import parse_spec

HOLLOW = "provisioner/hollow"
SPEC = parse_spec(
    {
        "image": "registry.example.com/store:1",
        "ports": [{"name": "grpc", "port": 9000}],
        "replicas": 3,
        "nodeSelector": {HOLLOW: "true"},
        "tolerations": [{"key": HOLLOW, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "startDeadline": "1h",
    }
)
POLL_SECONDS = 0.1
PATIENCE = 3600.0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the fleet did not come so far within an hour")
        time.sleep(POLL_SECONDS)


def services(namespace: str, count: int) -> list[Identity]:
    return [for_name("bench", "production", namespace=namespace, name=f"store-{number}") for number in range(count)]


@dataclass
class Cost:
    """What something took; filled when its block ends."""

    seconds: float = 0.0
    cpu: float = 0.0
    processes: int = 0


def used() -> float:
    """Processor seconds of this process and of all that it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Way(Protocol):
    """One way to bring services about."""

    name: str
    processes: int

    def apply(self, who: Identity) -> None:
        """Make a service, or bring it to what is wanted; returns when that is done."""

    def poll(self, who: Identity) -> None:
        """Look how it is."""

    def remove(self, who: Identity) -> None:
        """Take it away; returns when it is gone or going."""

    def fleet(self, services: Sequence[Identity], workers: int) -> None:
        """Make many, so many at once; returns when all are applied."""

    def close(self) -> None:
        """End its threads."""


@contextmanager
def measured(way: Way) -> Iterator[Cost]:
    cost, before, processes, begun = Cost(), used(), way.processes, time.monotonic()
    yield cost
    cost.seconds, cost.cpu = time.monotonic() - begun, used() - before
    cost.processes = way.processes - processes


class Ours:
    """This project's control, with its engine."""

    name = "this project"

    def __init__(self, settings: Settings, workers: int) -> None:
        self.processes = 0
        client = ClusterClient(settings)
        engine = Engine(settings, on_process=self._count)
        bounded = settings.model_copy(update={"workers": workers})
        self._controller = Controller.assembled(bounded, (), client, engine)
        self._controller.start()
        wait_for(self._controller.ready)

    def _count(self, _: Sequence[str]) -> None:
        self.processes += 1

    def _request(self, who: Identity) -> ServiceRequest:
        return ServiceRequest(who, SPEC, time.time())

    def apply(self, who: Identity) -> None:
        request = self._request(who)
        self._controller.ensure(request)
        wait_for(lambda: self._controller.settled(request))

    def poll(self, who: Identity) -> None:
        self._controller.observe(self._request(who))

    def remove(self, who: Identity) -> None:
        request = self._request(who)
        self._controller.remove(request)
        wait_for(lambda: self._controller.observe(request).phase is Phase.GONE)

    def fleet(self, services: Sequence[Identity], workers: int) -> None:
        requests = [self._request(who) for who in services]
        for request in requests:
            self._controller.ensure(request)
        wait_for(lambda: all(map(self._controller.settled, requests)))

    def close(self) -> None:
        self._controller.stop(60)


class Documented:
    """The Automation API as its documentation shows it, for the same program."""

    name = "Automation API"

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._sealer = Sealer.of(settings)
        self._log = folder / "starts"
        self._log.touch()
        shim = folder / "bin" / "pulumi"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\necho "$*" >> {self._log}\nexec {toolchain.locate("pulumi").path} "$@"\n')
        shim.chmod(0o755)
        os.environ["PATH"] = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
        self._variables = {
            "PULUMI_HOME": str(toolchain.pulumi_home()),
            "PULUMI_BACKEND_URL": f"file://{folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": "bench",
            "KUBECONFIG": str(settings.kubeconfig),
        }
        (folder / "backend").mkdir()

    @property
    def processes(self) -> int:
        return len(self._log.read_text().splitlines())

    def _stack(self, who: Identity) -> Any:
        from pulumi import automation

        stack = automation.create_or_select_stack(
            stack_name=who.stack,
            project_name=PROJECT,
            program=program(who, SPEC, self._sealer),
            opts=automation.LocalWorkspaceOptions(env_vars=self._variables),
        )
        stack.set_all_config({"service": automation.ConfigValue(who.service)})
        return stack

    def apply(self, who: Identity) -> None:
        self._stack(who).up(on_output=lambda _: None)

    def poll(self, who: Identity) -> None:
        from pulumi import automation

        automation.select_stack(
            stack_name=who.stack,
            project_name=PROJECT,
            program=lambda: None,
            opts=automation.LocalWorkspaceOptions(env_vars=self._variables),
        ).outputs()

    def remove(self, who: Identity) -> None:
        self._stack(who).destroy(on_output=lambda _: None, remove=True)

    def fleet(self, services: Sequence[Identity], workers: int) -> None:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self.apply, services))

    def close(self) -> None:
        """It keeps nothing."""


class Direct:
    """The Kubernetes client alone, with the same manifests: no state, no diff, no recovery."""

    name = "Kubernetes client"
    processes = 0

    def __init__(self, settings: Settings) -> None:
        from kubernetes import client, config

        api = config.new_client_from_config(str(settings.kubeconfig), settings.context)
        self._core, self._apps = client.CoreV1Api(api), client.AppsV1Api(api)

    def apply(self, who: Identity) -> None:
        from kubernetes.client.exceptions import ApiException

        for create, manifest in (
            (self._core.create_namespaced_service, service_manifest(who, SPEC)),
            (self._apps.create_namespaced_stateful_set, stateful_set_manifest(who, SPEC)),
        ):
            try:
                create(who.namespace, manifest)
            except ApiException as error:
                if error.status != 409:
                    raise

    def poll(self, who: Identity) -> None:
        self._apps.read_namespaced_stateful_set(who.service, who.namespace)

    def remove(self, who: Identity) -> None:
        self._apps.delete_namespaced_stateful_set(who.service, who.namespace)
        self._core.delete_namespaced_service(who.service, who.namespace)

    def fleet(self, services: Sequence[Identity], workers: int) -> None:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self.apply, services))

    def close(self) -> None:
        """It keeps nothing."""
