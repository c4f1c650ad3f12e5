"""What Flyte is told of a service: pure functions from a status to an answer of GetTask.

The phases are chosen by what propeller does with them:

- QUEUED and INITIALIZING keep their message, RUNNING's is dropped; the text
  and the replica counts also go into `custom_info`, which is kept.
- They only ever go forward here (queued, applying, starting), and a fault
  that passes is RUNNING, since an error of GetTask counts against the task.
- FAILED is permanent. RETRYABLE_FAILED would start the same specification
  again; what can be repeated is repeated inside control already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flyteidl.admin import agent_pb2
from flyteidl.core import literals_pb2
from flyteidl.core.execution_pb2 import ExecutionError, TaskExecution, TaskLog
from flytekit import FlyteContext
from flytekit.core.type_engine import TypeEngine
from flytekit.extend.backend.base_connector import Resource

from provisioner.control.status import Phase, Status
from provisioner.errors import ProvisionerError
from provisioner.flyte.meta import Attached, Rejected, Unreadable, Wanted
from provisioner.flyte.service import DataService

# The outputs that a task may declare.
OUTPUT_NAME = "name"
OUTPUT_SERVICE = "service"
OUTPUTS = (OUTPUT_NAME, OUTPUT_SERVICE)

_PHASES = {
    Phase.QUEUED: TaskExecution.QUEUED,
    Phase.APPLYING: TaskExecution.INITIALIZING,
    Phase.STARTING: TaskExecution.RUNNING,
    Phase.READY: TaskExecution.SUCCEEDED,
    Phase.FAILED: TaskExecution.FAILED,
    # Somebody ended it while the task still waited for it.
    Phase.REMOVING: TaskExecution.FAILED,
    Phase.GONE: TaskExecution.FAILED,
    Phase.IN_USE: TaskExecution.FAILED,
}
_REMOVED = (Phase.REMOVING, Phase.GONE, Phase.IN_USE)
# What the author of the workflow cannot cure: the deployment, the cluster, or a fault of ours.
_OF_THE_SYSTEM = frozenset(
    {
        "AdmissionUnavailable",
        "ClusterUnreachable",
        "DiskFull",
        "EngineFailed",
        "EngineKilled",
        "EngineMissing",
        "Forbidden",
        "InternalError",
        "InvalidAnswer",
        "MountFailed",
        "NodeLost",
        "OtherCluster",
        "PodRejected",
        "ProcessLimit",
        "ProgramFailed",
        "RecordUnreadable",
        "RegistryUnreachable",
        "SandboxFailed",
        "SecretUnreadable",
        "SecretsProviderUnknown",
        "StatePermissionDenied",
        "StateUnreadable",
        "Terminating",
        "UnreadableMeta",
    }
)


# Outputs as protobuf: flytekit takes milliseconds for it, in the event loop, and every call would wait for that.
_ENCODED: dict[str, literals_pb2.LiteralMap] = {}
_MOST_ENCODED = 256


@dataclass
class Answer(Resource):  # type: ignore[misc]
    """flytekit's answer, with the reason of a failure where Flyte has a field for it.

    Attributes:
        reason: CamelCase code of the failure, or "".
    """

    reason: str = ""

    async def to_flyte_idl(self) -> agent_pb2.Resource:
        """As protobuf; a failure says its code, and whether the author or the deployment is to act."""
        message = agent_pb2.Resource(phase=self.phase, message=self.message, log_links=self.log_links)
        if self.outputs is not None:
            message.outputs.CopyFrom(await _encoded(self.outputs))
        if self.custom_info:
            message.custom_info.update(self.custom_info)
        if self.phase == TaskExecution.FAILED:
            origin = ExecutionError.SYSTEM if self.reason in _OF_THE_SYSTEM else ExecutionError.USER
            message.agent_error.code = self.reason or "Failed"
            message.agent_error.kind = agent_pb2.AgentError.NON_RECOVERABLE
            message.agent_error.origin = origin
        return message


async def prepare() -> None:
    """Let flytekit load what it encodes outputs with: the first success would hold up all calls for that long."""
    await _encoded({"service": DataService("", "", "", "", {}, [])})


async def _encoded(outputs: dict[str, Any]) -> literals_pb2.LiteralMap:
    key = repr(outputs)
    found = _ENCODED.get(key)
    if found is None:
        found = await TypeEngine.dict_to_literal_map_pb(FlyteContext.current_context(), outputs)
        while len(_ENCODED) >= _MOST_ENCODED:
            del _ENCODED[next(iter(_ENCODED))]
        _ENCODED[key] = found
    return found


def of_status(content: Wanted | Attached, status: Status, links: Sequence[TaskLog] = ()) -> Answer:
    """The answer for a service whose status is known.

    Args:
        content: What the task asked for.
        status: How it is.
        links: Where its logs are kept.
    """
    outputs = _outputs(content, status) if status.phase is Phase.READY else None
    return Answer(
        phase=_PHASES[status.phase],
        message=_message(status),
        log_links=list(links),
        outputs=outputs,
        custom_info=_custom_info(content, status),
        reason=_reason(status),
    )


def of_fault(error: Exception) -> Answer:
    """The answer when the status cannot be told now: wait, do not count it against the task.

    Args:
        error: What stands in the way.
    """
    if isinstance(error, ProvisionerError):
        reason, message, hint = error.reason, error.message, error.hint
    else:
        reason, message, hint = "InternalError", f"{type(error).__name__}: {error}", "see the log of the server"
    return Answer(
        phase=TaskExecution.RUNNING,
        message=_sentences(reason, f"its status is not known now, {message}", hint),
        custom_info={"reason": reason, "message": message, "hint": hint},
    )


def of_rejected(content: Rejected) -> Answer:
    """The answer for a request that can never succeed: a permanent failure, with all that is wrong."""
    return Answer(
        phase=TaskExecution.FAILED,
        message=_sentences(content.reason, content.message, content.hint),
        custom_info={
            "phase": Phase.FAILED.value,
            "reason": content.reason,
            "message": content.message,
            "hint": content.hint,
        },
        reason=content.reason,
    )


def of_unreadable(content: Unreadable) -> Answer:
    """The answer for a resource meta that this version cannot read.

    One of a newer version is waited for: while servers are being replaced,
    the next poll may reach one that reads it. Anything else never will be
    readable, so it fails for good.
    """
    reason = "UnreadableMeta"
    if content.newer:
        hint = "a newer server wrote it and can read it: finish the upgrade, or do not go back"
        return Answer(phase=TaskExecution.RUNNING, message=_sentences(reason, content.message, hint))
    hint = "was the task started by another connector for the same task type?"
    return Answer(phase=TaskExecution.FAILED, message=_sentences(reason, content.message, hint), reason=reason)


def data_service(content: Wanted | Attached, status: Status) -> DataService:
    """The value that the next task takes.

    Args:
        content: What the task asked for.
        status: A status of phase `Ready`.
    """
    ports = {endpoint.name: endpoint.port for endpoint in status.endpoints}
    if isinstance(content, Attached):
        name, namespace, stack = content.service, content.namespace, status.stack
        dns_name = f"{name}.{namespace}.svc.cluster.local"
    else:
        identity = content.request.identity
        name, namespace, stack, dns_name = identity.service, identity.namespace, identity.stack, identity.dns_name()
        ports = {port.name: port.port for port in content.request.spec.ports}
    return DataService(name, namespace, dns_name, stack, ports, list(status.endpoints))


def _outputs(content: Wanted | Attached, status: Status) -> dict[str, Any]:
    service = data_service(content, status)
    values: dict[str, Any] = {OUTPUT_NAME: service.name, OUTPUT_SERVICE: service}
    return {name: values[name] for name in content.outputs}


def _custom_info(content: Wanted | Attached, status: Status) -> dict[str, Any]:
    place = content if isinstance(content, Attached) else content.request.identity
    return {
        "service": place.service,
        "namespace": place.namespace,
        "stack": status.stack,
        "phase": status.phase.value,
        "reason": status.reason,
        "message": status.message,
        "hint": status.hint,
        "ready": status.ready,
        "wanted": status.wanted,
    }


def _reason(status: Status) -> str:
    # Somebody ended it while the task still waited for it.
    return status.reason or ("Removed" if status.phase in _REMOVED else "")


def _message(status: Status) -> str:
    reason = _reason(status)
    message = status.message or status.phase.value
    if status.phase is Phase.STARTING and reason:
        message = f"{status.ready} of {status.wanted} replicas are ready; {message}"
    return _sentences(reason, message, status.hint)


def _sentences(reason: str, message: str, hint: str) -> str:
    text = f"{reason}: {message}" if reason else message
    return f"{text}\n{hint}" if hint else text
