"""What a fleet costs, beside the Automation API as documented and the plain Kubernetes client, in one run.

Run: python tests/bench/fleet_bench.py [--services 20 100] [--workers 1 2 4 8] [--creates 50] [--sandbox bench]
Add 300 to --services for the largest; it takes most of an hour on two cores, and a quarter of that with --fleets-alone,
which leaves out the Automation API and all that is no fleet.

- One service after the other: processes, processor time and seconds of a create, a repeat, a poll and a delete.
- Fleets of services of three replicas on hollow nodes: how many a second are applied, and how many have all their
  replicas ready, as the API server shows it.
- Calls: CreateTask and GetTask at a real server while it carries out creates.
- Memory: what 1,000 more services of three replicas take in the server's memory.

The three ways make the same objects, are seen by the same observer, and share the machine with the control plane.
Everything is a ratio or a count, or says on how loaded a machine it was taken: the load is printed first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ground import hollow_sandbox, quantiles, template
from ways import SPEC, Direct, Documented, Ours, Way, measured, services, wait_for

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import NAMESPACES, Call
from provisioner.cluster.live import LiveObjects
from provisioner.cluster.transport import NotFoundError
from provisioner.control.request import ServiceRequest
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec


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


def fleets(bench: Bench, counts: Sequence[int], workers: Sequence[int], *, documented: bool = True) -> None:
    head = f"\n{'fleet of 3 replicas':<20}{'services':>9}{'workers':>8}{'applied/s':>10}{'ready/s':>9}"
    print(f"{head}{'CPU-s each':>11}{'processes':>10}")
    for count in counts:
        for number in workers:
            with bench.ways(number) as ways:
                for way in ways:
                    if isinstance(way, Documented) and not documented:
                        continue
                    with bench.namespace() as namespace, ThreadPoolExecutor(1) as aside:
                        # The first one of a backend pays for imports, connections, and the backend itself.
                        first, *wanted = services(namespace, count + 1)
                        way.apply(first)
                        way.remove(first)
                        wait_for(lambda first=first: not bench.client.remaining(first))
                        seen = aside.submit(seconds_until_ready, bench, namespace, count)
                        with measured(way) as cost:
                            way.fleet(wanted, number)
                        seconds = seen.result()
                        print(
                            f"{way.name:<20}{count:>9}{number:>8}{count / cost.seconds:>10.2f}{count / seconds:>9.2f}"
                            f"{cost.cpu / count:>11.2f}{cost.processes:>10}",
                            flush=True,
                        )


def seconds_until_ready(bench: Bench, namespace: str, count: int) -> float:
    """Seconds from now until each replica of each service is ready, whether its record is written or not."""
    begun = time.monotonic()
    wait_for(lambda: ready(bench, namespace) == count)
    return time.monotonic() - begun


def ready(bench: Bench, namespace: str) -> int:
    found = [item.found for item in bench.live.statefulsets(namespace)]
    return sum(item.ready_replicas == item.replicas > 0 for item in found)


def row(values: Sequence[float]) -> str:
    p50, p99 = quantiles(values)
    return f"{p50:>10.1f}{p99:>10.1f}{len(values):>10}"


def calls(bench: Bench, creates: int) -> None:
    from provisioner.demo.caller import Caller, Execution
    from provisioner.demo.server import ServerProcess

    task = template()
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
                metas.append(caller.create(task, Execution(f"bench{number}", namespace)))
                created.append(time.monotonic() - begun)
            while ready(bench, namespace) < creates:
                for meta in metas:
                    begun = time.monotonic()
                    caller.poll(meta)
                    polled.append(time.monotonic() - begun)
        finally:
            caller.close()
            server.stop()
    print(f"{'CreateTask':<20}{row(created)}\n{'GetTask':<20}{row(polled)}")


def resident() -> float:
    """MiB of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def fill(count: int) -> None:
    """The process of the memory: takes in services as the watch would show them, and prints what they take."""
    from datetime import UTC, datetime

    from provisioner.cluster.objects import Pod, Service, StatefulSet
    from provisioner.cluster.store import ObjectStore
    from provisioner.control.queue import Done, Intent, KeyedQueue, Kind, Lane

    store, queue, now = ObjectStore(), KeyedQueue(), datetime.now(UTC)
    before = resident()
    for who in services("bench", count):
        # Each request is read from its own meta, as a server reads it.
        spec = DataServiceSpec.model_validate_json(SPEC.canonical_json())
        queue.submit(Intent(Kind.APPLY, ServiceRequest(who, spec, time.time())), 0.0)
        operation = queue.take(0.0, Lane.BEGIN)
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
    parser.add_argument("--fleets-alone", action="store_true", help="only fleets, without the Automation API")
    parser.add_argument("--sandbox", default="bench", help="a sandbox without a real node, ended afterwards")
    parser.add_argument("--fill", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        fill(arguments.fill)
        return
    with hollow_sandbox(arguments.sandbox) as sandbox, tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        settings = Settings(kubeconfig=sandbox.kubeconfig, context=sandbox.context)
        bench = Bench(settings, Path(name))
        if not arguments.fleets_alone:
            memory()
            one_by_one(bench)
            if arguments.creates:
                calls(bench, arguments.creates)
        fleets(bench, arguments.services, arguments.workers, documented=not arguments.fleets_alone)


if __name__ == "__main__":
    main()
