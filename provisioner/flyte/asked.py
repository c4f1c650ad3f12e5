"""What a CreateTask asks for: its template, inputs and metadata made into content of a resource meta.

No I/O but the passphrase's file, and that alone for a specification with a secret.
"""

from __future__ import annotations

from flytekit.models.literals import LiteralMap
from flytekit.models.task import TaskExecutionMetadata, TaskTemplate

from provisioner import settings
from provisioner.control.access import check_account, check_namespace, limits, read_access
from provisioner.control.request import ServiceRequest
from provisioner.errors import PermanentError, Problem, ProvisionerError, SpecError, TransientError
from provisioner.flyte import answer, execution
from provisioner.flyte import inputs as task_inputs
from provisioner.flyte.meta import Attached, Rejected, Wanted
from provisioner.identity import TaskExecutionId, for_name, for_task
from provisioner.sealing import Sealer
from provisioner.spec import DataServiceSpec
from provisioner.spec.load import ServiceConfig

# All problems of any specification that a person wrote; not of one that a program got wrong.
_LONGEST_MESSAGE = 6000


def asked(
    template: TaskTemplate, inputs: LiteralMap | None, metadata: TaskExecutionMetadata | None, now: float
) -> Wanted | Attached:
    """What one task execution asks for.

    Args:
        template: The task.
        inputs: Its inputs.
        metadata: Whose it is; None in a local run, which shares nothing.
        now: The time in seconds since the epoch.

    Raises:
        PermanentError: It can never be had.
        TransientError: The passphrase that seals a secret cannot be read.
    """
    config = task_inputs.parse(template.custom, inputs, source=f"task_config of {template.id.name}")
    outputs, namespace = _declared_outputs(template), settings.load().namespace
    if metadata is None:
        if config.existing_release_name is not None:
            return Attached(namespace, config.existing_release_name, outputs)
        identity = execution.local(template.id.name, namespace=namespace, name=config.name)
        spec = _sealed(_spec(config), identity.stack)
        return Wanted(ServiceRequest(identity, spec, now), outputs)
    return _of_flyte(config, execution.task_execution(metadata), metadata.namespace or namespace, outputs, now)


def _of_flyte(
    config: ServiceConfig, task: TaskExecutionId, namespace: str, outputs: tuple[str, ...], now: float
) -> Wanted | Attached:
    user = execution.user_of(task)
    allowed = limits(read_access(settings.load().access), task.project, task.domain)
    check_namespace(allowed, task.project, task.domain, namespace)
    if config.spec is not None:
        check_account(allowed, task.project, task.domain, config.spec)
    if config.existing_release_name is not None:
        return Attached(namespace, config.existing_release_name, outputs, user)
    if config.shared and config.name is not None:
        identity = for_name(task.project, task.domain, namespace=namespace, name=config.name)
        spec = _sealed(_spec(config), identity.stack)
        return Wanted(ServiceRequest(identity, spec, now, shared=True), outputs, user=user)
    identity = for_task(task, namespace=namespace, name=config.name)
    request = ServiceRequest(identity, _sealed(_spec(config), identity.stack), now)
    # What is to be retained outlives its attempt as well.
    earlier = () if is_retained(request) else execution.earlier(task, namespace=namespace, name=config.name)
    return Wanted(request, outputs, tuple(item.service for item in earlier))


def _spec(config: ServiceConfig) -> DataServiceSpec:
    assert config.spec is not None  # noqa: S101 - a configuration has a service to create or the name of one
    return config.spec


def _sealed(spec: DataServiceSpec, stack: str) -> DataServiceSpec:
    try:
        return Sealer.of(settings.load()).sealed(spec, stack)
    except PermanentError as error:
        # The passphrase is the server's; without it nothing may be written, and nobody's request is at fault.
        raise TransientError(error.message, reason=error.reason, hint=error.hint) from error


def _declared_outputs(template: TaskTemplate) -> tuple[str, ...]:
    declared = tuple(template.interface.outputs) if template.interface else ()
    unknown = [name for name in declared if name not in answer.OUTPUTS]
    if unknown:
        accepted = f"an output that a data service has: {' or '.join(answer.OUTPUTS)}"
        problems = [Problem(f"outputs.{name}", "", accepted) for name in unknown]
        raise SpecError(problems, source=f"interface of {template.id.name}")
    return declared


def rejected(error: ProvisionerError) -> Rejected:
    """What is kept of a request that can never succeed: all that is wrong with it.

    Args:
        error: That.
    """
    if isinstance(error, SpecError):
        lines = [f"{error.source} is not valid:", *(f"  {problem}" for problem in error.problems)]
        message = "\n".join(lines)
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE].rpartition("\n")[0]
            message += f"\n  ... and {len(lines) - 1 - message.count(chr(10))} more"
    else:
        message = error.message[:_LONGEST_MESSAGE]
    return Rejected(error.reason, message, error.hint)


def is_retained(request: ServiceRequest) -> bool:
    """Whether it stays when its owner has ended."""
    return request.spec.deletion_policy == "Retain"
