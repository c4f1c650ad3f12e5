"""What the tests of faults share: one backend, servers whose side effects are seen, an API server that can fail."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from api_proxy import ApiProxy, Write
from fault_server import ENGINE, Replica, command_name, ended, engine_processes
from fault_service import Service
from points import Case, Point, Trail, file_effect
from syscalls import FileChange
from waiting import wait_for

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import NAMESPACES, SERVICES, STATEFULSETS, Call
from provisioner.demo.caller import Caller, Execution
from provisioner.engine import Engine
from provisioner.errors import TransientError
from provisioner.identity import Identity
from provisioner.settings import Settings

# Until an operation comes by the point that is waited for.
REACH_SECONDS = 90.0
# Of what was removed lately there is a note, for the other servers.
NOTES = "removed"


class World:
    """One backend, one namespace, a proxy before the API server, and servers that may be killed.

    Args:
        settings: Lead to the real API server, and to a backend of its own.
        folder: For logs and files.
        variables: More environment of the servers.
        hosts: Whether each server is on a host of its own, as its name says.
    """

    def __init__(self, settings: Settings, folder: Path, variables: Mapping[str, str], *, hosts: bool = False) -> None:
        self._hosts = hosts
        self._numbers = itertools.count()
        self._folder = folder
        self.client = ClusterClient(settings)
        self.namespace = f"faults-{uuid.uuid4().hex[:8]}"
        self.client.transport.json(Call("create", NAMESPACES), body={"metadata": {"name": self.namespace}})
        # These servers watch this one alone, as those of a team that has a Role and no ClusterRole.
        self._variables = {**variables, "PROVISIONER_NAMESPACES": self.namespace}
        self.proxy = ApiProxy(settings, folder, tls=True)
        self.proxy.before, self.proxy.after = self._before_write, self._after_write
        through = self.proxy.settings()
        self.settings = settings.model_copy(update={"kubeconfig": through.kubeconfig, "context": through.context})
        self.engine = Engine(self.settings)
        self.backend = Path(settings.backend.removeprefix("file://"))
        self.refuse: Callable[[FileChange], int] = lambda _: 0
        self.created: Counter[str] = Counter()
        self._trail: Trail | None = None
        self._stack = ""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="spare")
        self._started: list[Replica] = []
        self._spare: Future[Replica] = self._pool.submit(self._start)
        self._server: Replica | None = None

    # Servers.

    def _start(self) -> Replica:
        return self.start(f"host-{next(self._numbers)}" if self._hosts else "")

    def start(self, host: str) -> Replica:
        """Start one more server; it ends with the others.

        Args:
            host: Name of its host; "" for the real one.
        """
        folder = self._folder / f"server-{next(self._numbers)}"
        folder.mkdir()
        made = Replica(self.settings, folder, self._file_change, self._variables, host)
        self._started.append(made)
        made.start()
        return made

    def server(self) -> Replica:
        """The server that is called; another one when it has been killed."""
        if self._server is None or ended(self._server.pid):
            # The next one starts while this one is at work: a replica that nobody calls.
            self._server = self._spare.result()
            self._spare = self._pool.submit(self._start)
        return self._server

    def spare(self) -> Replica:
        """Another server, which takes the place of the one that is called when that has been killed."""
        return self._spare.result()

    def calling(self, call: Callable[[Caller], Any]) -> Any:
        """Make a call, to another server if this one is killed meanwhile."""
        for _ in range(3):
            server = self.server()
            caller = Caller(server.address)
            try:
                return call(caller)
            except TransientError:
                wait_for(lambda server=server: ended(server.pid), "a call fails only when its server is killed")
            finally:
                caller.close()
        raise AssertionError("no server answers")

    def close(self) -> None:
        self._spare.result()
        for server in self._started:
            server.stop(30)
        self._pool.shutdown()
        self.proxy.close()
        self.client.transport.json(Call("delete", NAMESPACES, name=self.namespace))

    # Services.

    def service(self) -> Service:
        """A service that nobody has asked for yet."""
        return Service(self, Execution(f"f{uuid.uuid4().hex[:12]}", self.namespace))

    def objects(self, stack: str) -> dict[str, int]:
        """How many objects of each kind carry the label of a stack."""
        query = {"labelSelector": f"data-service-provisioner/stack={stack}"}
        found = {}
        for resource in (SERVICES, STATEFULSETS):
            listed = self.client.transport.json(Call("list", resource, self.namespace), query=query)
            found[resource.kind] = len(listed["items"])
        return found

    def left(self, identity: Identity) -> list[str]:
        """What is there of a service: objects, files, processes."""
        files = [
            str(path) for path in self.backend.rglob("*") if identity.stack in path.name and path.parent.name != NOTES
        ]
        return [*self.client.remaining(identity), *files, *map(str, self.engine_processes())]

    def engine_processes(self) -> list[int]:
        """The pids of all processes of engines that these servers have started, also of killed ones."""
        return engine_processes(str(self.settings.kubeconfig))

    # Side effects.

    @contextmanager
    def trail(self, operation: str, service: Service, reached: Callable[[Point], bool]) -> Iterator[None]:
        """Be told each side effect of an operation until the block ends.

        Args:
            operation: Its name.
            service: The service that it is on.
            reached: Told each, while it is held up; False: a request is lost on its way.
        """
        self.created.clear()
        self._stack, self._trail = service.stack, Trail(operation, reached)
        try:
            yield
        finally:
            self._trail = None

    @contextmanager
    def killing(self, case: Case, service: Service) -> Iterator[None]:
        """Kill at a point; the block ends when that has happened.

        Args:
            case: When and what.
            service: The service whose operation begins in the block.
        """
        server, fired = self.server(), threading.Event()

        def reached(point: Point) -> bool:
            if point != case.point or fired.is_set():
                return True
            # The provider comes a moment after the CLI.
            pids = wait_for(lambda: server.victims().get(case.victim), f"there is a {case.victim} to be killed")
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: all(ended(pid) for pid in pids), "it is dead")
            fired.set()
            return case.victim not in (case.point.actor, "machine")

        with self.trail(case.point.operation, service, reached):
            yield
            assert fired.wait(REACH_SECONDS), f"no operation came by this point: {case.point}"

    def _file_change(self, change: FileChange) -> int:
        if not change.path.is_relative_to(self.backend):
            return 0
        trail = self._trail
        if trail is not None and not _idle(change):
            actor = ENGINE.get(command_name(change.pid), "server")
            trail.effect(actor, file_effect(change.verb, change.path, self.backend, self._stack))
        return self.refuse(change)

    def _before_write(self, write: Write) -> bool:
        return self._write(write, "sent")

    def _after_write(self, write: Write, status: int) -> None:
        if status == HTTPStatus.CREATED and write.resource in ("services", "statefulsets"):
            self.created[write.resource] += 1
        self._write(write, "done")

    def _write(self, write: Write, moment: str) -> bool:
        trail = self._trail
        if trail is None or f"/namespaces/{self.namespace}/" not in write.path:
            return True
        actor = "server" if write.agent.startswith("data-service-provisioner/") else "provider"
        return trail.effect(actor, f"{write.method} {write.resource} {moment}")


def _idle(change: FileChange) -> bool:
    """Whether it changes nothing: it takes away what is not there, or makes a folder that is."""
    there = os.path.lexists(change.path)
    return there if change.verb == "mkdir" else change.verb in ("unlink", "rmdir") and not there
