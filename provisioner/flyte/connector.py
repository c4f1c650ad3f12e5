"""The connector: CreateTask, GetTask and DeleteTask as ensure, observe and remove.

Each answers from memory. The methods are synchronous on purpose: flytekit
runs those in a thread, so that none holds up the server's event loop, and
when a local run is interrupted it can call only a synchronous `delete`.

A specification that cannot be right is no error of CreateTask: propeller
would count that as a fault of the system and start the task again. CreateTask
succeeds, and the first GetTask answers FAILED, which is final, with all that
is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from flyteidl.admin.agent_pb2 import GetTaskLogsResponse, GetTaskMetricsResponse
from flyteidl.core.execution_pb2 import TaskLog
from flytekit.extend.backend.base_connector import AsyncConnectorBase, Resource
from flytekit.models.literals import LiteralMap
from flytekit.models.task import TaskExecutionMetadata, TaskTemplate

from provisioner import logs, settings
from provisioner.control.access import read_access
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.errors import PermanentError, ProvisionerError, TransientError
from provisioner.flyte import answer, insight
from provisioner.flyte.asked import asked, is_retained, rejected
from provisioner.flyte.links import log_links
from provisioner.flyte.local import LocalServices
from provisioner.flyte.meta import Attached, Cleanup, DataServiceMeta, Rejected, Unreadable, Wanted
from provisioner.flyte.runtime import RUNTIME, Control, Runtime
from provisioner.flyte.task import TASK_TYPE
from provisioner.identity import Identity, for_name

if TYPE_CHECKING:
    from provisioner.control.replica_logs import LogPage

log = structlog.get_logger(__name__)


class DataServiceConnector(AsyncConnectorBase):  # type: ignore[misc]
    """Provides data services to Flyte tasks of type `dataservicetask`.

    Args:
        runtime: Gives the control; this process's own by default.
        clock: The time in seconds since the epoch.
    """

    name = "Data Service Connector"

    def __init__(self, runtime: Runtime = RUNTIME, clock: Callable[[], float] = time.time) -> None:
        super().__init__(metadata_type=DataServiceMeta, task_type_name=TASK_TYPE, task_type_version=0)
        self._runtime = runtime
        self._clock = clock
        self._local = LocalServices(runtime)

    def create(
        self,
        task_template: TaskTemplate,
        output_prefix: str = "",  # noqa: ARG002 - flytekit's signature; outputs go with the answer
        inputs: LiteralMap | None = None,
        task_execution_metadata: TaskExecutionMetadata | None = None,
        **_: Any,
    ) -> DataServiceMeta:
        """Ask for the service of one task execution; the same request again gives the same service.

        Args:
            task_template: Its `custom` says what is wanted.
            output_prefix: Not used.
            inputs: Put in where the specification names them.
            task_execution_metadata: Whose it is; None in a local run.

        Returns:
            All that later calls need. A request that can never succeed is
            answered too, and fails for good at the first poll.

        Raises:
            UsageError: The server's settings or its access rules are not valid.
            TransientError: The passphrase that seals a secret cannot be read;
                or, in a local run alone, the service cannot be asked for now.
        """
        # Outside of the next block: settings that are wrong are the server's fault, not this request's.
        logs.configure_as_guest(settings.load())
        read_access(settings.load().access)
        try:
            content = asked(task_template, inputs, task_execution_metadata, self._clock())
            meta = DataServiceMeta(content)
            size = len(meta.encode())
        except PermanentError as error:
            log.warning("task rejected", task=task_template.id.name, reason=error.reason, error=error.message)
            return DataServiceMeta(rejected(error))
        if not isinstance(content, Wanted):
            log.info("task attached", service=content.service, namespace=content.namespace, meta_bytes=size)
            return meta
        request = content.request
        bound = _bound(request)
        self._remove_earlier(content)
        if task_execution_metadata is None and not is_retained(request):
            self._local.own(request)
        try:
            status = self._begin(content)
        except TransientError as error:
            if task_execution_metadata is None:
                self._local.disown(request)
                raise  # the person who runs it sees it at once
            # Nothing is lost: the first poll asks again, with the request from the meta.
            bound.warning("service not asked for yet", reason=error.reason, error=error.message)
        except PermanentError as error:
            bound.warning("service refused", reason=error.reason, error=error.message)
            self._local.disown(request)
            return DataServiceMeta(rejected(error))
        else:
            bound.info("service asked for", phase=status.phase.value, meta_bytes=size)
        return meta

    def get(self, resource_meta: DataServiceMeta, **_: Any) -> Resource:
        """How the service is; a fault that passes is answered as RUNNING.

        Args:
            resource_meta: What `create` returned.
        """
        content = resource_meta.content
        if isinstance(content, Rejected):
            return answer.of_rejected(content)
        if isinstance(content, Cleanup):
            content = Unreadable("resource meta of a cleanup", newer=False, raw=b"")
        if isinstance(content, Unreadable):
            log.error("resource meta is not readable", error=content.message, newer=content.newer)
            return answer.of_unreadable(content)
        try:
            control = self._runtime.control()
            if isinstance(content, Wanted):
                self._remove_earlier(content)
            status = _status(control, content)
            if isinstance(content, Wanted) and content.user is not None and status.phase is Phase.FAILED:
                # Flyte never asks for its removal after FAILED.
                control.sharing.release(content.request.identity, content.user, request=content.request)
            found = answer.of_status(content, status, _links(content, status))
        except PermanentError as error:
            return answer.of_rejected(rejected(error))
        except Exception as error:
            log.exception("status not known", error=str(error))
            return answer.of_fault(error)
        if isinstance(content, Wanted):
            self._local.tell(content.request, found.message or "")
        return found

    def delete(self, resource_meta: DataServiceMeta, **_: Any) -> None:
        """Remove the service; repeating it is harmless.

        What somebody else created stays, and what is to be retained.

        Returns at once, except in a local run: there it returns when the
        service is gone, since the process ends with it.

        Args:
            resource_meta: What `create` returned.

        Raises:
            ProvisionerError: It cannot be removed now; Flyte calls again.
        """
        content = resource_meta.content
        if isinstance(content, Unreadable):
            raise TransientError(content.message, reason="UnreadableMeta", hint="the janitor removes what is left")
        if isinstance(content, Attached):
            log.info("task detached", service=content.service, namespace=content.namespace)
            self._detach(content)
        elif isinstance(content, Wanted):
            if content.user is not None:
                self._runtime.control().sharing.release(content.request.identity, content.user, request=content.request)
                _bound(content.request).info("use ended", holder=content.user.holder)
                return
            if is_retained(content.request):
                _bound(content.request).info("service retained")
                return
            if self._local.owns(content.request):
                self._local.remove(content.request)
                return
            status = self._runtime.control().leave(content.request, anew=True)
            _bound(content.request).info("removal asked for", phase=status.phase.value)

    def get_metrics(
        self, resource_meta: DataServiceMeta, queries: Sequence[str] = (), **_: Any
    ) -> GetTaskMetricsResponse:
        """Replicas and restarts, as the shared watch knows them.

        Args:
            resource_meta: What `create` returned.
            queries: Names of metrics; all when empty.

        Raises:
            ProvisionerError: They cannot be told now.
        """
        content = resource_meta.content
        if not isinstance(content, Wanted | Attached):
            return GetTaskMetricsResponse()
        control = self._runtime.control()
        status = _status(control, content)
        identity = _identity(content, status)
        return insight.metrics_answer(status, control.snapshot(identity), queries)

    def log_page(self, resource_meta: DataServiceMeta, *, lines: int, token: str) -> LogPage | None:
        """A page of the logs of all replicas, read from the cluster: it may take seconds.

        Args:
            resource_meta: What `create` returned.
            lines: Longest page; 0 for the default.
            token: Of the page before; "" at the beginning.

        Returns:
            None for a request that never became a service.

        Raises:
            ProvisionerError: They cannot be read now, or the token is not of a page.
        """
        content = resource_meta.content
        if not isinstance(content, Wanted | Attached):
            return None
        control = self._runtime.control()
        identity = _identity(content, _status(control, content))
        return control.replica_logs.page(identity, lines=lines, token=token)

    def get_logs(self, resource_meta: DataServiceMeta, **_: Any) -> GetTaskLogsResponse:
        """The newest lines of all replicas, for flytekit's own server, which passes on no length and no token.

        Args:
            resource_meta: What `create` returned.

        Raises:
            ProvisionerError: They cannot be read now.
        """
        page = self.log_page(resource_meta, lines=0, token="")
        return GetTaskLogsResponse() if page is None else insight.logs_answer(page)

    def _begin(self, content: Wanted) -> Status:
        control = self._runtime.control()
        if content.user is not None:
            return control.use(content.request, content.user)
        return control.ensure(content.request)

    def _detach(self, content: Attached) -> None:
        """End the use of a service that somebody else made."""
        user = content.user
        if user is None:
            return
        sharing = self._runtime.control().sharing
        found = sharing.identity(content.namespace, content.service)
        # The cluster may not show it yet, or no more; then the Lease is under the name that a service has
        # that Flyte made for a task, or that somebody gave it.
        named = for_name(user.project, user.domain, namespace=content.namespace, name=content.service)
        for identity in (found,) if found is not None else (replace(named, stack=content.service), named):
            sharing.release(identity, user)

    def _remove_earlier(self, content: Wanted) -> None:
        """Remove what earlier attempts of the same task left; each call says so again, and costs nothing then."""
        for name in content.earlier:
            identity = replace(content.request.identity, service=name, stack=name)
            try:
                self._runtime.control().leave(replace(content.request, identity=identity))
            except ProvisionerError as error:
                # It is said again with the next poll.
                log.warning("an earlier attempt is not removed yet", stack_name=name, error=error.message)


def _identity(content: Wanted | Attached, status: Status) -> Identity:
    if isinstance(content, Wanted):
        return content.request.identity
    return Identity("", "", content.namespace, content.service, status.stack, "")


def _links(content: Wanted | Attached, status: Status) -> list[TaskLog]:
    return log_links(settings.load().log_links, _identity(content, status), status.wanted)


def _status(control: Control, content: Wanted | Attached) -> Status:
    if isinstance(content, Attached):
        return control.sharing.attached(content.namespace, content.service, content.user)
    if content.user is not None:
        return control.use(content.request, content.user)
    return control.observe(content.request)


def _bound(request: ServiceRequest) -> structlog.stdlib.BoundLogger:
    identity = request.identity
    bound: structlog.stdlib.BoundLogger = log.bind(
        stack_name=identity.stack, execution=identity.owner, project=identity.project, domain=identity.domain
    )
    return bound
