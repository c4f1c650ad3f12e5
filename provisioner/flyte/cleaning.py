"""The connector of the cleanup: a task type of its own, so that no pod of a user needs rights in the cluster.

GetTask is answered from memory: the job that is waited for and the service
are looked at aside. It succeeds when the API server shows nothing of the
service any more, or when it was given back and others still use it.
"""

from __future__ import annotations

from typing import Any

import structlog
from flyteidl.core.execution_pb2 import TaskExecution
from flytekit.extend.backend.base_connector import AsyncConnectorBase
from flytekit.models.literals import LiteralMap
from flytekit.models.task import TaskExecutionMetadata, TaskTemplate

from provisioner import logs, settings
from provisioner.control.access import check_namespace, limits, read_access
from provisioner.control.status import Phase, Status
from provisioner.errors import PermanentError, Problem, SpecError, TransientError
from provisioner.flyte import answer, execution, jobs
from provisioner.flyte.answer import Answer
from provisioner.flyte.asked import rejected
from provisioner.flyte.inputs import value_of
from provisioner.flyte.meta import Cleanup, DataServiceMeta, Rejected, Unreadable
from provisioner.flyte.runtime import RUNTIME, Runtime
from provisioner.spec.load import is_service_name

log = structlog.get_logger(__name__)

CLEANUP_TYPE = "dataservicecleanup"
# Instead of a service's name: all that the execution has made.
EVERY = "*"
RELEASE_NAME, JOB_NAME, WANTED = "release_name", "job_name", "cleanup_data_service"
_PHASES = {
    Phase.GONE: TaskExecution.SUCCEEDED,
    Phase.IN_USE: TaskExecution.SUCCEEDED,
    Phase.FAILED: TaskExecution.FAILED,
}


class CleanupConnector(AsyncConnectorBase):  # type: ignore[misc]
    """Ends uses of data services for Flyte tasks of type `dataservicecleanup`.

    Args:
        runtime: Gives the control; this process's own by default.
        waited: Knows the jobs that are waited for.
    """

    name = "Data Service Cleanup Connector"

    def __init__(self, runtime: Runtime = RUNTIME, waited: jobs.Jobs | None = None) -> None:
        super().__init__(metadata_type=DataServiceMeta, task_type_name=CLEANUP_TYPE, task_type_version=0)
        self._runtime = runtime
        self._jobs = waited or jobs.Jobs()

    def create(
        self,
        task_template: TaskTemplate,
        output_prefix: str = "",  # noqa: ARG002 - flytekit's signature
        inputs: LiteralMap | None = None,
        task_execution_metadata: TaskExecutionMetadata | None = None,
        **_: Any,
    ) -> DataServiceMeta:
        """Ask for the end of a use; it begins with the first poll.

        Args:
            task_template: Its `custom` says where, and what kind of job is waited for.
            output_prefix: Not used.
            inputs: Name of the service, and of the job.
            task_execution_metadata: Whose use ends; None in a local run.

        Raises:
            UsageError: The server's settings or its access rules are not valid.
        """
        # Outside of the next block: what is wrong there is the server's fault, not this request's.
        logs.configure_as_guest(settings.load())
        read_access(settings.load().access)
        try:
            content = _asked(task_template, inputs, task_execution_metadata)
        except PermanentError as error:
            log.warning("cleanup rejected", task=task_template.id.name, reason=error.reason, error=error.message)
            return DataServiceMeta(rejected(error))
        log.info("cleanup asked for", service=content.service, namespace=content.namespace, job=content.job)
        return DataServiceMeta(content)

    def get(self, resource_meta: DataServiceMeta, **_: Any) -> Answer:
        """How far it is; a fault that passes is answered as RUNNING.

        Args:
            resource_meta: What `create` returned.
        """
        content = resource_meta.content
        if isinstance(content, Rejected):
            return answer.of_rejected(content)
        if isinstance(content, Unreadable):
            return answer.of_unreadable(content)
        if not isinstance(content, Cleanup):
            return answer.of_unreadable(Unreadable("resource meta of another task type", newer=False, raw=b""))
        try:
            return _answer(content, self._status(content))
        except PermanentError as error:
            return answer.of_rejected(rejected(error))
        except Exception as error:
            log.exception("cleanup not known", error=str(error))
            return answer.of_fault(error)

    def delete(self, resource_meta: DataServiceMeta, **_: Any) -> None:
        """Nothing is undone: what has ended stays so, and what has not ends with its execution.

        Args:
            resource_meta: What `create` returned.
        """
        log.info("cleanup aborted", content=type(resource_meta.content).__name__)

    def _status(self, content: Cleanup) -> Status:
        if not content.service:
            return Status("", Phase.IN_USE, message="it is not to be cleaned up")
        waiting = self._waiting(content)
        if waiting:
            return Status("", Phase.QUEUED, reason="WaitingForJob", message=waiting)
        ending = self._runtime.control().ending
        if content.service == EVERY:
            return ending.end_all(content.namespace, content.user)
        return ending.end(content.namespace, content.service, content.user)

    def _waiting(self, content: Cleanup) -> str:
        """Why it has not begun, or ""."""
        from provisioner.janitor.facts import Alive, Unknown

        if not content.job:
            return ""
        liveness = self._jobs.liveness(content.namespace, content.job)
        if isinstance(liveness, Unknown):
            hint = "may this server list such jobs, and is their operator installed?"
            raise TransientError(liveness.why, reason="JobUnknown", hint=hint)
        if liveness is None or isinstance(liveness, Alive):
            return f"waits for {content.job} in namespace {content.namespace} to end"
        return ""


def _asked(template: TaskTemplate, inputs: LiteralMap | None, metadata: TaskExecutionMetadata | None) -> Cleanup:
    custom, literals = dict(template.custom or {}), dict(inputs.literals) if inputs else {}
    source, own = f"task {template.id.name}", settings.load().namespace
    if metadata is None:
        user = execution.local_user()
    else:
        user, own = execution.user_of(execution.task_execution(metadata)), metadata.namespace or own
        allowed = limits(read_access(settings.load().access), user.project, user.domain)
        check_namespace(allowed, user.project, user.domain, own)
    namespace = str(custom.get("namespace") or own)
    if namespace != own:
        accepted = f"the namespace of the execution, {own}; it need not be named"
        raise SpecError([Problem("namespace", namespace[:80], accepted)], source=source)
    if custom.get("all") is True:
        return Cleanup(namespace, EVERY, user)
    if _plain(literals, WANTED) is False:
        return Cleanup(namespace, "", user)
    service = _text(literals, RELEASE_NAME)
    if not is_service_name(service):
        raise SpecError([Problem(RELEASE_NAME, service[:80], "the name of a data service")], source=source)
    kind = custom.get("waitFor")
    job = jobs.check(str(kind), _text(literals, JOB_NAME), source=source) if kind else ""
    return Cleanup(namespace, service, user, job)


def _text(literals: dict[str, Any], name: str) -> str:
    value = _plain(literals, name)
    return value if isinstance(value, str) else ""


def _plain(literals: dict[str, Any], name: str) -> Any:
    # `graph.name` in a workflow arrives as a part of a structure, and not as a text.
    try:
        return value_of(literals[name])
    except (KeyError, ValueError):
        return None


def _answer(content: Cleanup, status: Status) -> Answer:
    phase = _PHASES.get(status.phase, TaskExecution.RUNNING)
    text = f"{status.reason}: {status.message}" if status.reason else status.message
    return Answer(
        phase=phase,
        message=f"{text}\n{status.hint}" if status.hint else text,
        custom_info={
            "service": content.service,
            "namespace": content.namespace,
            "phase": status.phase.value,
            "reason": status.reason,
            "message": status.message,
        },
        reason=status.reason,
    )
