"""What a fleet costs, beside the Automation API as documented and the plain Kubernetes client, in one run.

Run: python tests/bench/fleet_bench.py [--services 20 100] [--workers 1 2 4 8] [--creates 50] [--sandbox bench]
Add 300 to --services for the largest; it takes most of an hour on two cores.

- One service after the other: processes, processor time and seconds of a create, a repeat, a poll and a delete.
- Fleets of services of three replicas on hollow nodes: applied and ready per second.
- Calls: CreateTask and GetTask at a real server while it carries out creates.
- Memory: what 1,000 more services of three replicas take in the server's memory.

The three ways make the same objects, are seen by the same observer, and share the machine with the control plane.
Everything is a ratio or a count, or says on how loaded a machine it was taken: the load is printed first.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from provisioner import logs, toolchain
from provisioner.cluster import ClusterClient
from provisioner.cluster.api import NAMESPACES, Call
from provisioner.cluster.live import LiveObjects
from provisioner.cluster.transport import NotFoundError
from provisioner.control.controller import Controller
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase
from provisioner.engine import PROJECT, Engine
from provisioner.identity import Identity, for_name
from provisioner.resources.component import program
from provisioner.resources.manifests import service_manifest, stateful_set_manifest
from provisioner.sandbox import Sandbox
from provisioner.sealing import Sealer
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec, Port, parse_spec

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


class Bench:
    """The cluster and its namespaces."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.client = ClusterClient(settings)
        self.live = LiveObjects(self.client.transport)

    @contextmanager
    def namespace(self) -> Iterator[str]:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self.client.transport.json(Call("create", NAMESPACES), body={"metadata": {"name": name}})
        yield name
        self.client.transport.json(Call("delete", NAMESPACES, name=name))
        wait_for(lambda: self._gone(name))

    def _gone(self, name: str) -> bool:
        try:
            self.client.transport.json(Call("get", NAMESPACES, name=name))
        except NotFoundError:
            return True
        return False

    @contextmanager
    def ways(self, workers: int) -> Iterator[tuple[Way, ...]]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            (folder / "documented").mkdir()
            own = self.settings.model_copy(
                update={"backend": f"file://{folder / 'own'}", "passphrase_file": folder / "passphrase"}
            )
            path = os.environ["PATH"]
            made: tuple[Way, ...] = (Ours(own, workers), Documented(own, folder / "documented"), Direct(own))
            try:
                yield made
            finally:
                for way in made:
                    way.close()
                os.environ["PATH"] = path


def services(namespace: str, count: int) -> list[Identity]:
    return [for_name("bench", "production", namespace=namespace, name=f"store-{number}") for number in range(count)]


def one_by_one(bench: Bench) -> None:
    print(f"\n{'one service':<20}{'call':<10}{'processes':>10}{'CPU-s':>10}{'seconds':>10}")
    with bench.ways(1) as ways:
        for way in ways:
            with bench.namespace() as namespace:
                # The first one pays for imports and connections.
                first, who = services(namespace, 2)
                way.apply(first)
                calls = {"create": way.apply, "repeat": way.apply, "poll": way.poll, "delete": way.remove}
                for call, run in calls.items():
                    with measured(way) as cost:
                        run(who)
                    print(f"{way.name:<20}{call:<10}{cost.processes:>10}{cost.cpu:>10.2f}{cost.seconds:>10.2f}")
                way.remove(first)


def fleets(bench: Bench, counts: Sequence[int], workers: Sequence[int]) -> None:
    head = f"\n{'fleet of 3 replicas':<20}{'services':>9}{'workers':>8}{'applied/s':>10}{'ready/s':>9}"
    print(f"{head}{'CPU-s each':>11}{'processes':>10}")
    for count in counts:
        for number in workers:
            with bench.ways(number) as ways:
                for way in ways:
                    with bench.namespace() as namespace:
                        wanted, begun = services(namespace, count), time.monotonic()
                        with measured(way) as cost:
                            way.fleet(wanted, number)
                        wait_for(lambda namespace=namespace, count=count: ready(bench, namespace) == count)
                        seconds = time.monotonic() - begun
                        print(
                            f"{way.name:<20}{count:>9}{number:>8}{count / cost.seconds:>10.2f}{count / seconds:>9.2f}"
                            f"{cost.cpu / count:>11.2f}{cost.processes:>10}",
                            flush=True,
                        )


def ready(bench: Bench, namespace: str) -> int:
    found = [item.found for item in bench.live.statefulsets(namespace)]
    return sum(item.ready_replicas == item.replicas > 0 for item in found)


def quantiles(values: Sequence[float]) -> str:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"{1000 * cuts[49]:>10.1f}{1000 * cuts[98]:>10.1f}{len(values):>10}"


def calls(bench: Bench, creates: int) -> None:
    from flytekit.configuration import ImageConfig, SerializationSettings
    from flytekit.tools.translator import get_serializable

    from provisioner.demo.caller import Caller, Execution
    from provisioner.demo.server import ServerProcess
    from provisioner.flyte import DataServiceConfig, DataServiceTask

    fields = SPEC.model_dump(exclude_unset=True) | {"ports": [Port(name="grpc", port=9000)]}
    task = DataServiceTask(name="bench.store", task_config=DataServiceConfig(name="store", **fields))
    serialization = SerializationSettings(ImageConfig(), project="p", domain="d", version="v1")
    template = get_serializable(OrderedDict(), serialization, task).template.to_flyte_idl()
    print(f"\n{f'calls, {creates} creates':<20}{'p50 ms':>10}{'p99 ms':>10}{'calls':>10}")
    with tempfile.TemporaryDirectory(dir=bench.folder) as name, bench.namespace() as namespace:
        folder = Path(name)
        own = bench.settings.model_copy(
            update={"backend": f"file://{folder / 'own'}", "passphrase_file": folder / "passphrase", "workers": 4}
        )
        server = ServerProcess(own, folder)
        server.start()
        caller = Caller(server.address)
        try:
            metas, created, polled = [], [], []
            for number in range(creates):
                begun = time.monotonic()
                metas.append(caller.create(template, Execution(f"bench{number}", namespace)))
                created.append(time.monotonic() - begun)
            while ready(bench, namespace) < creates:
                for meta in metas:
                    begun = time.monotonic()
                    caller.poll(meta)
                    polled.append(time.monotonic() - begun)
        finally:
            caller.close()
            server.stop()
    print(f"{'CreateTask':<20}{quantiles(created)}\n{'GetTask':<20}{quantiles(polled)}")


def resident() -> float:
    """MiB of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def fill(count: int) -> None:
    """The process of the memory: takes in services as the watch would show them, and prints what they take."""
    from datetime import UTC, datetime

    from provisioner.cluster.objects import Pod, Service, StatefulSet
    from provisioner.cluster.store import ObjectStore
    from provisioner.control.queue import Done, Intent, KeyedQueue, Kind

    store, queue, now = ObjectStore(), KeyedQueue(), datetime.now(UTC)
    before = resident()
    for who in services("bench", count):
        # Each request is read from its own meta, as a server reads it.
        spec = DataServiceSpec.model_validate_json(SPEC.canonical_json())
        queue.submit(Intent(Kind.APPLY, ServiceRequest(who, spec, time.time())), 0.0)
        operation = queue.take(0.0)
        assert operation is not None
        queue.finish(operation, Done(("create Service store", "create StatefulSet store")), 1.0)
        place = {"namespace": who.namespace, "stack": who.stack, "created": now}
        store.put(StatefulSet(name=who.service, digest=spec.digest(), replicas=3, ready_replicas=3, **place))
        store.put(Service(name=who.service, **place))
        for ordinal in range(3):
            name = f"{who.service}-{ordinal}"
            store.put(Pod(name=name, uid=str(uuid.uuid4()), revision=f"{who.service}-abc", ready=True, **place))
    print(f"{(resident() - before) * 1000 / count:.1f}")


def memory() -> None:
    done = subprocess.run([sys.executable, __file__, "--fill", "3000"], capture_output=True, text=True, check=True)
    print(f"\nmemory per 1,000 services of 3 replicas: {done.stdout.splitlines()[-1]} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--services", type=int, nargs="*", default=[20, 100])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--creates", type=int, default=50)
    parser.add_argument("--sandbox", default="bench", help="a sandbox without a real node, ended afterwards")
    parser.add_argument("--fill", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        fill(arguments.fill)
        return
    logs.configure(Settings(), level="error")
    print(f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}")
    print(f"load before: {os.getloadavg()[0]:.2f}", flush=True)
    sandbox = Sandbox(arguments.sandbox)
    sandbox.up(node=False, hollow=2)
    try:
        with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
            settings = Settings(kubeconfig=sandbox.kubeconfig, context=sandbox.context)
            bench = Bench(settings, Path(name))
            memory()
            one_by_one(bench)
            if arguments.creates:
                calls(bench, arguments.creates)
            fleets(bench, arguments.services, arguments.workers)
    finally:
        sandbox.down()


if __name__ == "__main__":
    main()
