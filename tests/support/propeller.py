"""Runs a compiled workflow as Flyte's propeller does, on a real cluster and with a real connector.

What propeller does and no more: it orders the nodes, binds their inputs, calls
connectors over gRPC, makes a pod or a training job of a task with a container,
and runs the failure node. Flyte keeps inputs and outputs in a blob store; here
that is a folder which the node's pods see at the same path.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import msgpack
from flyteidl.core import errors_pb2, literals_pb2
from flyteidl.core.execution_pb2 import TaskExecution
from flytekit import FlyteContext
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import WorkflowBase
from flytekit.models.literals import Binary, Literal, LiteralMap, Scalar
from flytekit.models.task import TaskSpec, TaskTemplate
from flytekit.tools.translator import get_serializable

from provisioner.cluster.api import PODS
from provisioner.demo.caller import Caller, Execution
from provisioner.demo.objects import TFJOBS, Objects, await_true
from provisioner.demo.training import ended_as
from provisioner.flyte.cleaning import CLEANUP_TYPE
from provisioner.flyte.task import TASK_TYPE
from provisioner.identity import dns_name

OF_CONNECTORS = (TASK_TYPE, CLEANUP_TYPE)
PATIENCE = 180.0
_OF_JOB = "training.kubeflow.org/job-name"
_INPUT = re.compile(r"\{\{\s*\.inputs\.(\w+)\s*\}\}", re.IGNORECASE)


class NodeFailed(Exception):
    """A node of the workflow has failed.

    Args:
        node: Its id.
        message: Why.
    """

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")


class Propeller:
    """One execution.

    Args:
        address: `host:port` of the connectors' server.
        objects: The namespace.
        execution: Whose execution it is.
        storage: A folder that pods of the node see too.
    """

    def __init__(self, address: str, objects: Objects, execution: Execution, storage: Path) -> None:
        self._address, self._objects, self._execution, self._storage = address, objects, execution, storage
        self.metas: dict[str, bytes] = {}

    def run(self, workflow: WorkflowBase, **inputs: Any) -> dict[str, Any]:
        """Run it to its end.

        Args:
            workflow: As its author wrote it.
            inputs: As its author would give them.

        Returns:
            Its outputs.

        Raises:
            NodeFailed: A node failed; the failure node has run.
        """
        spec, templates = _compiled(workflow)
        context = FlyteContext.current_context()
        types = workflow.python_interface.inputs
        values = {"start-node": dict(TypeEngine.dict_to_literal_map(context, inputs, type_hints=types).literals)}
        nodes = {node.id: node for node in spec.template.nodes if node.task_node is not None}
        order = TopologicalSorter({name: _upstream(node) & set(nodes) for name, node in nodes.items()})
        try:
            for name in order.static_order():
                values[name] = self._node(nodes[name], templates, values)
        except NodeFailed:
            if spec.template.failure_node is not None:
                self._node(spec.template.failure_node, templates, values)
            raise
        found = {item.var: _bound(item.binding, values) for item in spec.template.outputs}
        return {
            name: TypeEngine.to_python_value(context, found[name], kind)
            for name, kind in workflow.python_interface.outputs.items()
        }

    def _node(self, node: Any, templates: Mapping[str, TaskTemplate], values: Mapping[str, Any]) -> dict[str, Literal]:
        template = templates[node.task_node.reference_id.name]
        inputs = {item.var: _bound(item.binding, values) for item in node.inputs}
        if template.type in OF_CONNECTORS:
            return self._by_connector(node.id, template, inputs)
        folder = self._storage / node.id
        folder.mkdir()
        (folder / "inputs.pb").write_bytes(LiteralMap(inputs).to_flyte_idl().SerializeToString())
        name = dns_name(node.id, self._execution.name)
        container = _container(template, folder, inputs)
        if template.type == "tensorflow":
            self._await_job(node.id, name, _tfjob(name, template, container, folder))
        else:
            self._await_pod(node.id, name, {"metadata": {"name": name}, **_pod(container, folder)})
        return _outputs(node.id, folder) if template.interface.outputs else {}

    def _by_connector(self, node: str, template: TaskTemplate, inputs: dict[str, Literal]) -> dict[str, Literal]:
        execution = replace(self._execution, node=node)
        caller = Caller(self._address, template.type)
        literals = {name: literal.to_flyte_idl() for name, literal in inputs.items()}
        meta = caller.create(template.to_flyte_idl(), execution, **literals)
        if template.type == TASK_TYPE:
            self.metas[node] = meta
        answer = caller.final(meta, PATIENCE)
        caller.close()
        if answer.phase != TaskExecution.SUCCEEDED:
            raise NodeFailed(node, answer.message)
        return dict(LiteralMap.from_flyte_idl(answer.outputs).literals)

    def _await_pod(self, node: str, name: str, manifest: dict[str, Any]) -> None:
        self._objects.create(PODS, manifest)

        def phase() -> str:
            return str(self._objects.get(PODS, name).get("status", {}).get("phase"))

        try:
            await_true(lambda: phase() in ("Succeeded", "Failed"), PATIENCE, f"pod {name} has ended")
            if phase() == "Failed":
                raise NodeFailed(node, f"pod {name} has failed\n{self._ended(self._objects.get(PODS, name))}")
        finally:
            self._objects.delete(PODS, name)

    def _ended(self, pod: Mapping[str, Any]) -> str:
        """How a pod has ended, and the last lines of its log."""
        name, status = pod["metadata"]["name"], pod["status"]
        states = [item["state"] for item in status.get("containerStatuses") or []]
        return f"{name}: {status.get('reason', '')} {states}\n{self._objects.log(name)}"

    def _await_job(self, node: str, name: str, manifest: dict[str, Any]) -> None:
        self._objects.create(TFJOBS, manifest)

        def ended() -> str:
            return ended_as(self._objects.get(TFJOBS, name))

        try:
            await_true(lambda: ended() != "", PATIENCE, f"TFJob {name} has ended")
            if ended() == "Failed":
                said = "".join(f"\n{self._ended(pod)}" for pod in self._objects.listed(PODS, f"{_OF_JOB}={name}"))
                raise NodeFailed(node, f"TFJob {name} has failed{said}")
        finally:
            self._objects.delete(TFJOBS, name)


def _compiled(workflow: WorkflowBase) -> tuple[Any, dict[str, TaskTemplate]]:
    settings = SerializationSettings(ImageConfig(), project="p", domain="d", version="v1")
    entities: OrderedDict[Any, Any] = OrderedDict()
    spec = get_serializable(entities, settings, workflow)
    specs = [entity for entity in entities.values() if isinstance(entity, TaskSpec)]
    # As registration sends them: through protobuf.
    templates = [TaskTemplate.from_flyte_idl(item.template.to_flyte_idl()) for item in specs]
    return spec, {template.id.name: template for template in templates}


def _upstream(node: Any) -> set[str]:
    promised = {item.binding.promise.node_id for item in node.inputs if item.binding.promise is not None}
    return promised | set(node.upstream_node_ids)


def _bound(binding: Any, values: Mapping[str, Mapping[str, Literal]]) -> Literal:
    if binding.scalar is not None:
        return Literal(scalar=binding.scalar)
    promise = binding.promise
    # A workflow's own inputs are of no node.
    literal = values[promise.node_id or "start-node"][promise.var]
    if not promise.attr_path:
        return literal
    # A part of a structure stays MessagePack, whatever it is.
    part = msgpack.unpackb(literal.scalar.binary.value)
    for attribute in promise.attr_path:
        part = part[getattr(attribute, "value", attribute)]
    return Literal(scalar=Scalar(binary=Binary(value=msgpack.packb(part), tag="msgpack")))


def _text(literal: Literal) -> str:
    if literal.scalar.binary is not None:
        return str(msgpack.unpackb(literal.scalar.binary.value))
    return str(literal.scalar.primitive.value)


def _container(template: TaskTemplate, folder: Path, inputs: Mapping[str, Literal]) -> dict[str, Any]:
    places = {
        "{{.input}}": f"{folder}/inputs.pb",
        "{{.outputPrefix}}": f"{folder}/outputs",
        "{{.rawOutputDataPrefix}}": f"{folder}/raw",
        "{{.checkpointOutputPrefix}}": f"{folder}/checkpoints",
        "{{.prevCheckpointPrefix}}": '""',
    }

    def rendered(text: str) -> str:
        for place, value in places.items():
            text = text.replace(place, value)
        return _INPUT.sub(lambda match: _text(inputs[match[1]]), text)

    container = template.container
    return {
        "name": "primary",
        "image": container.image,
        "command": [rendered(word) for word in container.command],
        "args": [rendered(word) for word in container.args],
        "env": [{"name": name, "value": value} for name, value in (container.env or {}).items()],
        "volumeMounts": [{"name": "storage", "mountPath": str(folder)}],
    }


def _pod(container: dict[str, Any], folder: Path) -> dict[str, Any]:
    volume = {"name": "storage", "hostPath": {"path": str(folder), "type": "Directory"}}
    return {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}}


def _tfjob(name: str, template: TaskTemplate, container: dict[str, Any], folder: Path) -> dict[str, Any]:
    replicas = int(template.custom["workerReplicas"]["replicas"])
    # The operator puts TF_CONFIG into the container of this name.
    pod = _pod(container | {"name": "tensorflow"}, folder)
    worker = {"replicas": replicas, "restartPolicy": "Never", "template": pod}
    return {
        "apiVersion": f"{TFJOBS.group}/{TFJOBS.version}",
        "kind": TFJOBS.kind,
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }


def _outputs(node: str, folder: Path) -> dict[str, Literal]:
    error = folder / "outputs" / "error.pb"
    if error.exists():
        raise NodeFailed(node, errors_pb2.ErrorDocument.FromString(error.read_bytes()).error.message)
    found = literals_pb2.LiteralMap.FromString((folder / "outputs" / "outputs.pb").read_bytes())
    return dict(LiteralMap.from_flyte_idl(found).literals)
