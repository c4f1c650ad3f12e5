"""What the tests of faults share: servers whose side effects are seen, an API server that can fail, and services."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from api_proxy import ApiProxy, Write
from flyteidl.admin.agent_pb2 import Resource as Answer
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.tasks_pb2 import TaskTemplate
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.tools.translator import get_serializable
from points import Case, Point, Trail, file_effect
from syscalls import FileChange, Traced

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import NAMESPACES, SERVICES, STATEFULSETS, Call
from provisioner.demo.caller import Caller, Execution
from provisioner.demo.server import ServerProcess
from provisioner.engine import Engine
from provisioner.errors import TransientError
from provisioner.flyte import DataServiceConfig, DataServiceTask
from provisioner.flyte.meta import DataServiceMeta, Wanted
from provisioner.identity import Identity, TaskExecutionId, for_task
from provisioner.settings import Settings
from provisioner.spec import Port

# Within so many polls, a quarter of a second apart, what was disturbed must be as it was asked for.
MOST_POLLS = 400
POLL_SECONDS = 0.25
# Until an operation comes by the point that is waited for.
REACH_SECONDS = 90.0
TASK = "flow.store"
# Of what was removed lately there is a note, for the other servers.
NOTES = "removed"
OPERATIONS = ("create", "update", "delete")
# What an update asks for: it changes the Service and the StatefulSet, and gives the pod another template.
CHANGE = {"ports": [Port(name="main", port=9000), Port(name="more", port=9001)]}
_ENGINE = {"pulumi": "cli", "pulumi-resource": "provider"}


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return value


def command_name(pid: int) -> str:
    """The name of a process, at most 15 letters; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def ended(pid: int) -> bool:
    """Whether a process runs no more; its remains may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Replica(ServerProcess):
    """`provisioner serve`, each change that it and its engine make to files told beforehand.

    Args:
        settings: Backend and cluster.
        folder: For its log.
        decide: Told each change.
        variables: More environment.
        host: Name of the host that it sees; "" for the real one.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        decide: Callable[[FileChange], int],
        variables: Mapping[str, str],
        host: str = "",
    ) -> None:
        super().__init__(settings, folder)
        self.host = host
        self._decide = decide
        self._variables = variables

    def _launch(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return Traced(command, self._decide, {**environment, **self._variables}, log, self.host).process

    def engine_processes(self) -> dict[str, list[int]]:
        """`cli` and `provider` -> the pids of those that it has started and that still run."""
        found: dict[str, list[int]] = {"cli": [], "provider": []}
        for pid in _descendants(self.pid):
            kind = _ENGINE.get(command_name(pid))
            if kind is not None and not ended(pid):
                found[kind].append(pid)
        return found

    def victims(self) -> dict[str, list[int]]:
        """What can be killed now -> its pids; the machine only where it is more than the server."""
        engine = {kind: pids for kind, pids in self.engine_processes().items() if pids}
        found = {"server": [self.pid], **engine}
        return {**found, "machine": list(itertools.chain(*found.values()))} if engine else found


def _idle(change: FileChange) -> bool:
    """Whether it changes nothing: it takes away what is not there, or makes a folder that is."""
    there = os.path.lexists(change.path)
    return there if change.verb == "mkdir" else change.verb in ("unlink", "rmdir") and not there


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from _descendants(child)


def begin(operation: str, service: Service) -> None:
    """Ask for what an operation does.

    Args:
        operation: `create`, `update` or `delete`.
        service: Its service.
    """
    if operation == "create":
        service.create()
    elif operation == "update":
        service.create(**CHANGE)
    else:
        service.delete()


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong for a while.

    Attributes:
        name: Names it.
        begins: Whether it begins at a point.
        begin: Called then, with the server that carries the operation out.
        seconds: How long it lasts.
        end: Called afterwards.
    """

    name: str
    begins: Callable[[Point], bool]
    begin: Callable[[World, Replica], None]
    seconds: float
    end: Callable[[World], None]


@dataclass
class Service:
    """One data service, asked for as propeller does.

    Attributes:
        world: Where.
        execution: On whose behalf.
        meta: What CreateTask answered last.
        polls: How many polls the last wait took.
    """

    world: World
    execution: Execution
    meta: bytes = b""
    polls: int = 0

    @property
    def identity(self) -> Identity:
        """Known before anybody has answered: it follows from the execution."""
        who = self.execution
        task = TaskExecutionId("p", "d", who.name, who.node, TASK, "v1", who.attempt)
        return for_task(task, namespace=who.namespace, name="store")

    @property
    def stack(self) -> str:
        return self.identity.stack

    def create(self, **change: Any) -> None:
        """CreateTask; a call that fails is repeated, as propeller does."""
        self.meta = self.world.calling(lambda caller: caller.create(self.world.template(**change), self.execution))
        content = DataServiceMeta.decode(self.meta).content
        assert isinstance(content, Wanted)
        assert content.request.identity == self.identity

    def delete(self) -> None:
        """DeleteTask; likewise."""
        self.world.calling(lambda caller: caller.delete(self.meta))

    def poll(self) -> Answer:
        return self.world.calling(lambda caller: caller.poll(self.meta))

    def converge(self) -> None:
        """Poll until it is ready, and assert that there is one of each object, no lock and no process."""
        said: list[str] = []
        for self.polls in range(1, MOST_POLLS + 1):
            answer = self.poll()
            if not said or said[-1] != answer.message:
                said.append(answer.message)
            assert answer.phase != TaskExecution.FAILED, said
            if answer.phase == TaskExecution.SUCCEEDED:
                break
            time.sleep(POLL_SECONDS)
        else:
            raise AssertionError(f"not ready after {MOST_POLLS} polls: {said}")
        stack, state = self.stack, self.world.engine.state
        checkpoint = state.checkpoint(stack)
        assert checkpoint is not None
        assert checkpoint.pending_operations == ()
        assert self.world.objects(stack) == {"Service": 1, "StatefulSet": 1}
        wait_for(lambda: not state.locks(stack), "no lock is left")
        wait_for(lambda: not self.world.engine_processes(), "no process of the engine is left")

    def vanish(self) -> None:
        """DeleteTask, and assert that nothing of it is left, in cluster, backend and machine."""
        self.delete()
        self.gone()

    def gone(self) -> None:
        """Assert that nothing of it is left before long."""
        left: list[str] = []
        for self.polls in range(1, MOST_POLLS + 1):
            left = self.world.left(self.identity)
            if not left:
                return
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"after {MOST_POLLS} looks there is still {left}; its status: {self.poll().message}")


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
        self.proxy = ApiProxy(settings, folder)
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
                wait_for(lambda server=server: ended(server.pid), "a call fails only when its server is killed", 5)
            finally:
                caller.close()
        raise AssertionError("no server answers")

    def close(self) -> None:
        self._spare.result()
        self._pool.shutdown()
        for server in self._started:
            server.stop(30)
        self.proxy.close()
        self.client.transport.json(Call("delete", NAMESPACES, name=self.namespace))

    # Services.

    def service(self) -> Service:
        """A service that nobody has asked for yet."""
        return Service(self, Execution(f"f{uuid.uuid4().hex[:12]}", self.namespace))

    def template(self, **change: Any) -> TaskTemplate:
        """The task of a service of one replica that starts and ends at once."""
        fields: dict[str, Any] = {
            "name": "store",
            "image": "localhost/busybox:sandbox",
            "command": ["/bin/busybox", "nc", "-ll", "-p", "9000", "-e", "/bin/busybox", "true"],
            "ports": [Port(name="main", port=9000)],
            "replicas": 1,
            "termination_grace_period_seconds": 0,
            **change,
        }
        task = DataServiceTask(name=TASK, task_config=DataServiceConfig(**fields))
        settings = SerializationSettings(ImageConfig(), project="p", domain="d", version="v1")
        return get_serializable(OrderedDict(), settings, task).template.to_flyte_idl()

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
        mark = str(self.settings.kubeconfig).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and command_name(pid := int(entry.name)) in _ENGINE and not ended(pid):
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        found.append(pid)
        return found

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
            pids = wait_for(lambda: server.victims().get(case.victim), f"there is a {case.victim} to be killed", 20)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: all(ended(pid) for pid in pids), "it is dead")
            fired.set()
            return case.victim not in (case.point.actor, "machine")

        with self.trail(case.point.operation, service, reached):
            yield
            assert fired.wait(REACH_SECONDS), f"no operation came by this point: {case.point}"

    def disturbed(self, operation: str, service: Service, fault: Fault) -> None:
        """Begin an operation, let a fault begin in its midst, poll while it lasts, and let it end.

        Args:
            operation: `create`, `update` or `delete`.
            service: Its service.
            fault: What goes wrong.
        """
        server, begun = self.server(), threading.Event()

        def reached(point: Point) -> bool:
            if fault.begins(point) and not begun.is_set():
                begun.set()
                fault.begin(self, server)
            return True

        with self.trail(operation, service, reached):
            begin(operation, service)
            assert begun.wait(REACH_SECONDS), "no operation came so far"
            end = time.monotonic() + fault.seconds
            while time.monotonic() < end:
                answer = service.poll()
                assert answer.phase != TaskExecution.FAILED or operation == "delete", answer.message
                time.sleep(POLL_SECONDS)
            fault.end(self)
            if operation == "delete":
                service.gone()
            else:
                service.converge()

    def _file_change(self, change: FileChange) -> int:
        if not change.path.is_relative_to(self.backend):
            return 0
        trail = self._trail
        if trail is not None and not _idle(change):
            actor = _ENGINE.get(command_name(change.pid), "server")
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
