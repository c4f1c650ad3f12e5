"""The demonstration itself, step by step."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flyteidl.admin.agent_pb2 import Resource
from flyteidl.core import tasks_pb2
from flyteidl.core.execution_pb2 import TaskExecution

from provisioner.cluster import ClusterClient
from provisioner.control.operations import Operations
from provisioner.control.reaper import remove_all
from provisioner.control.request import ServiceRequest
from provisioner.demo import example, training
from provisioner.demo.caller import Caller, Execution
from provisioner.demo.kept import Kept
from provisioner.demo.objects import Objects
from provisioner.demo.report import DemoError, DemoReport, Recorder, Show, Step
from provisioner.demo.server import ServerProcess
from provisioner.engine import Engine
from provisioner.errors import PermanentError, ProvisionerError, UsageError
from provisioner.flyte import DataService
from provisioner.flyte.meta import DataServiceMeta, Wanted
from provisioner.identity import ANNOTATION_SPEC_HASH, LABEL_STACK
from provisioner.settings import Settings, state_home
from provisioner.spec import parse_config

SHARDS = 3
SCALED = 6
_READY_SECONDS = 300.0
_GONE_SECONDS = 300.0
# Of a status; the whole of it is in the server's log and in Flyte's console.
_MESSAGE = 120


@dataclass(frozen=True)
class Options:
    """What is demonstrated, and where.

    Attributes:
        sandbox: Name of the sandbox; None for the settings' own cluster.
        image: An image with the example that the cluster can pull; None builds one.
        examples: The folder with the package `gnn`; None for the checkout's.
        steps: Batches of each training worker.
        keep: Leave it running at the end.
        operator: Whether the training is a TFJob, run by the Kubeflow training operator.
    """

    sandbox: str | None = "default"
    image: str | None = None
    examples: Path | None = None
    steps: int = 200
    keep: bool = False
    operator: bool = False


class Demo:
    """One demonstration.

    Args:
        options: What and where.
        settings: Backend and, without a sandbox, the cluster.
        show: Told of all that happens.
    """

    def __init__(self, options: Options, settings: Settings, show: Show) -> None:
        self._options = options
        self._settings = settings
        self._record = Recorder(show)
        self._show = show
        self._execution = Execution(f"demo-{secrets.token_hex(4)}", settings.namespace)
        self._folder = state_home() / "demo" / self._execution.name
        self._job = f"train-{self._execution.name}"
        self._made: ServiceRequest | None = None

    def run(self) -> DemoReport:
        """All of it.

        Raises:
            ProvisionerError: A step went wrong; what it had made is removed.
        """
        examples = example.find(self._options.examples)
        image = self._cluster_and_image(examples)
        template = example.serialized_task(examples, image)
        self._client = ClusterClient(self._settings)
        self._objects = Objects(self._client, self._settings.namespace)
        self._folder.mkdir(parents=True)
        server = ServerProcess(self._settings, self._folder)
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._clean_up, server)
            self._start(server)
            caller = Caller(server.address)
            meta, service = self._create(caller, template)
            self._repeat(caller, template, meta)
            self._train(image, service)
            meta = self._scale(caller, template, meta)
            if self._options.keep:
                kept = self._keep(meta, server)
            else:
                self._delete(caller, meta)
                self._prove(meta)
                self._stop(server, caller)
                kept = ()
            cleanup.pop_all()
        return DemoReport(tuple(self._record.steps), kept)

    def _cluster_and_image(self, examples: Path) -> str:
        name = self._options.sandbox
        if name is None:
            if self._options.image is None:
                raise UsageError(
                    "another cluster cannot be given an image that is built here",
                    reason="NoImage",
                    hint=f"push an image with numpy, and examples/gnn in {example.APP}; name it with --image",
                )
            with self._record.step("reach the cluster") as step:
                step.result = f"cluster {ClusterClient(self._settings).cluster_id()}"
            return self._options.image
        from provisioner.sandbox import Sandbox

        sandbox = Sandbox(name)
        with self._record.step("start the cluster") as step:
            additions = ("training-operator",) if self._options.operator else ()
            status = sandbox.up(additions=additions, progress=step.show.update)
            step.result = ", ".join((f"sandbox {name}", f"{len(status.nodes)} node", *additions))
        self._settings = self._settings.model_copy(
            update={"kubeconfig": sandbox.kubeconfig, "context": sandbox.context}
        )
        if self._options.image is not None:
            return self._options.image
        with self._record.step("build the image") as step:
            archive = example.build_image(examples, step.show.update)
            step.show.update("loading it into the sandbox")
            sandbox.load_image(archive)
            step.result = f"{example.IMAGE}, {archive.stat().st_size / 1e6:.0f} MB"
        return example.IMAGE

    def _start(self, server: ServerProcess) -> None:
        with self._record.step("start the server") as step:
            server.start()
            step.result = f"gRPC on {server.address}, process {server.pid}"

    def _create(self, caller: Caller, template: tasks_pb2.TaskTemplate) -> tuple[bytes, DataService]:
        with self._record.step("provide the graph store") as step:
            started = time.monotonic()
            meta = caller.create(template, self._execution)
            took = time.monotonic() - started
            self._made = _request(meta)
            step.show.say(f"CreateTask answered in {took * 1000:.0f} ms: {len(meta)} bytes to remember")
            service = caller.service(meta, _READY_SECONDS, _phases(step))
            self._check_service(service, SHARDS)
            step.result = f"{len(service.endpoints)} replicas ready, one shard each"
            for address in service.dns_addresses():
                step.show.say(address)
        return meta, service

    def _repeat(self, caller: Caller, template: tasks_pb2.TaskTemplate, meta: bytes) -> None:
        with self._record.step("repeat the same request") as step:
            before = self._pods(meta)
            again = caller.create(template, self._execution)
            caller.service(again, _READY_SECONDS, _phases(step))
            if self._pods(meta) != before:
                raise DemoError(f"a repeated request changed the pods: {before} became {self._pods(meta)}")
            step.result = "nothing changed"

    def _train(self, image: str, service: DataService) -> None:
        with self._record.step("train on it") as step:
            job = training.Job(self._job, image, service, self._options.steps, self._options.operator)
            trained = training.run(job, self._objects, self._client, step.show)
            step.result = (
                f"accuracy {trained.accuracy:.3f}; without the graph {trained.baseline:.3f} (softmax regression)"
            )

    def _scale(self, caller: Caller, template: tasks_pb2.TaskTemplate, meta: bytes) -> bytes:
        with self._record.step("scale it up") as step:
            larger = example.with_replicas(template, SCALED)
            before = self._pods(meta)
            for line in self._preview(_request(meta), larger):
                step.show.say(line)
            meta = caller.create(larger, self._execution)
            service = caller.service(meta, _READY_SECONDS, _phases(step))
            self._check_service(service, SCALED)
            after = self._pods(meta)
            if {name: after.get(name) for name in before} != before:
                raise DemoError(f"scaling up replaced pods: {before} became {after}")
            step.result = f"from {len(before)} to {len(after)} replicas, none of the first restarted"
        return meta

    def _preview(self, request: ServiceRequest, larger: tasks_pb2.TaskTemplate) -> list[str]:
        from google.protobuf import json_format

        spec = parse_config(json_format.MessageToDict(larger.custom)).spec
        if spec is None:
            raise DemoError("the example's task creates no service")
        engine = Engine(self._settings)
        operations = Operations(engine, ClusterClient(self._settings), self._settings)
        wanted = operations.program(replace(request, spec=spec), engine.state.checkpoint(request.stack))
        changes = engine.stack(request.stack).preview(wanted)
        fields = {
            field for change in changes.changed for field in change.fields if change.type.startswith("kubernetes:")
        }
        if fields != {"spec.replicas", f"metadata.annotations.{ANNOTATION_SPEC_HASH}"} or any(
            change.op != "update" for change in changes.changed
        ):
            raise DemoError(f"scaling up is not an update of the replicas alone, in place: {changes}")
        return [f"preview: {change}" for change in changes.changed]

    def _delete(self, caller: Caller, meta: bytes) -> None:
        with self._record.step("delete it") as step:
            step.show.update("the training")
            training.remove(self._job, self._objects)
            caller.delete(meta)
            caller.delete(meta)
            step.show.update("the store")
            self._await_gone(_request(meta), step)
            step.result = "DeleteTask, twice as Flyte may call it"

    def _await_gone(self, request: ServiceRequest, step: Step) -> None:
        deadline = time.monotonic() + _GONE_SECONDS
        while left := self._left(request):
            step.show.update(f"{len(left)} objects and records are still there, such as {left[-1]}")
            if time.monotonic() > deadline:
                raise DemoError(f"not gone after {_GONE_SECONDS:g} s: {', '.join(left)}")
            time.sleep(0.5)

    def _left(self, request: ServiceRequest) -> list[str]:
        state = Engine(self._settings).state
        left = self._client.remaining(request.identity)
        left += [f"stack {request.stack}"] if state.exists(request.stack) else []
        left += [f"lock of {lock}" for lock in state.locks(request.stack)]
        return left

    def _prove(self, meta: bytes) -> None:
        with self._record.step("prove that nothing is left") as step:
            request = _request(meta)
            left = self._left(request) + self._objects.names(f"{training.LABEL}={self._job}")
            if left:
                raise DemoError(f"something is left: {', '.join(left)}")
            selector = f"{LABEL_STACK}={request.stack}"
            step.show.say(f"cluster: no StatefulSet, Service, Secret, claim or pod with {selector}, no training")
            step.show.say(f"backend: no stack {request.stack} and no lock in {self._settings.backend}")
            step.result = "neither in the cluster nor in the backend"

    def _stop(self, server: ServerProcess, caller: Caller) -> None:
        with self._record.step("stop the server") as step:
            caller.close()
            code = server.stop()
            if code != 0:
                raise DemoError(f"the server ended with code {code}: {server.last_words()}", hint=f"see {server.log}")
            step.result = "SIGTERM, drained, exit code 0"

    def _keep(self, meta: bytes, server: ServerProcess) -> tuple[str, ...]:
        kept = Kept(
            request=_request(meta),
            job=self._job,
            server_pid=server.pid,
            server_log=str(server.log),
            kubeconfig=str(self._settings.kubeconfig or ""),
            context=self._settings.context or "",
        )
        kept.save()
        return kept.commands(self._settings)

    def _pods(self, meta: bytes) -> dict[str, str]:
        return self._objects.pod_uids(f"{LABEL_STACK}={_request(meta).stack}")

    def _check_service(self, service: DataService, replicas: int) -> None:
        ordinals = [endpoint.replica for endpoint in service.endpoints]
        if ordinals != list(range(replicas)):
            raise DemoError(f"{replicas} replicas were asked for, and the output names replicas {ordinals}")

    def _clean_up(self, server: ServerProcess) -> None:
        """After a failure: remove what was made, without the server, which may be what failed."""
        self._show.say("removing what was made")
        try:
            server.stop()
            training.remove(self._job, self._objects)
            if self._made is not None and not remove_all([self._made], self._settings, self._show.say):
                self._show.say(f"stack {self._made.stack} is still there; the backend is {self._settings.backend}")
        except ProvisionerError as error:
            # The error that led here is the one to be told in the end.
            self._show.say(f"that failed: {error.message}")


def _request(meta: bytes) -> ServiceRequest:
    content = DataServiceMeta.decode(meta).content
    if not isinstance(content, Wanted):
        raise PermanentError(f"CreateTask was answered with {content}", reason="DemoFailed")
    return content.request


def _phases(step: Step) -> Callable[[Resource], None]:
    """Show each phase once, with what is said of it."""
    seen: list[str] = []

    def told(answer: Resource) -> None:
        message = answer.message.partition("\n")[0]
        if len(message) > _MESSAGE:
            message = message[: _MESSAGE - 3] + "..."
        line = f"GetTask: {TaskExecution.Phase.Name(answer.phase)}, {message}"
        if seen[-1:] != [line]:
            seen.append(line)
            step.show.update(line)

    return told
