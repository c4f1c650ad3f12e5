"""Owners asked for at flyteadmin, with the client and the configuration of flytekit.

Flyteadmin keeps every execution, so one that it does not know is a sign of
having asked the wrong Flyte, not of an end.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from provisioner.janitor.facts import Alive, Ended, Liveness, Owner, Unknown

# The default deadline of each call, by gRPC's own service configuration; flytekit's client has none.
_SERVICE_CONFIG = json.dumps(
    {"methodConfig": [{"name": [{"service": "flyteidl.service.AdminService"}], "timeout": "10s"}]}
)
# By the names of WorkflowExecution.Phase in flyteidl. While it is failing or being aborted its tasks still run.
_ENDED = {"SUCCEEDED": "succeeded", "FAILED": "failed", "ABORTED": "was aborted", "TIMED_OUT": "timed out"}
_FAILED = frozenset({"FAILED", "TIMED_OUT"})


@dataclass(frozen=True)
class Unreachable:
    """Nobody answered.

    Attributes:
        why: What went wrong.
    """

    why: str


class FlyteAdmin:
    """Asks flyteadmin, found as every flytekit program finds it (FLYTECTL_CONFIG, FLYTE_PLATFORM_URL, ...).

    Args:
        readers: Asks for several executions at once.
        endpoint: Address instead of the configured one.
        insecure: Whether that is without TLS.
    """

    name = "flyteadmin"

    def __init__(self, readers: Executor, *, endpoint: str | None = None, insecure: bool = False) -> None:
        self._readers = readers
        self._endpoint = endpoint
        self._insecure = insecure
        self._client: Any = None

    def ask(self, owners: Collection[Owner]) -> Mapping[Owner, Liveness]:
        """Whether executions still run.

        Args:
            owners: Which.
        """
        if not owners:
            return {}
        try:
            client = self._connect()
        except Exception as error:  # noqa: BLE001 - flytekit reads files and environment, each with errors of its own
            return dict.fromkeys(owners, Unknown(f"flytekit's configuration cannot be used: {error}"))
        first, *others = owners
        answer = _ask(client, first)
        if isinstance(answer, Unreachable):
            # The next thousand would each wait for the same.
            return dict.fromkeys(owners, Unknown(answer.why))
        answers = self._readers.map(lambda owner: _ask(client, owner), others)
        plain = (Unknown(item.why) if isinstance(item, Unreachable) else item for item in (answer, *answers))
        return dict(zip(owners, plain, strict=True))

    def silence(self) -> str:
        """Why nobody answers, or "" when somebody does."""
        nobody = Owner("none", "none", "none")
        try:
            answer = _ask(self._connect(), nobody)
        except Exception as error:  # noqa: BLE001 - as above
            return f"flytekit's configuration cannot be used: {error}"
        return answer.why if isinstance(answer, Unreachable) else ""

    def _connect(self) -> Any:
        if self._client is None:
            # Seconds of imports, only for who asks flyteadmin.
            from flytekit.clients.friendly import SynchronousFlyteClient
            from flytekit.configuration import Config, PlatformConfig

            platform = (
                PlatformConfig(endpoint=self._endpoint, insecure=self._insecure)
                if self._endpoint
                else Config.auto().platform
            )
            self._client = SynchronousFlyteClient(platform, options=[("grpc.service_config", _SERVICE_CONFIG)])
        return self._client


def _ask(client: Any, owner: Owner) -> Liveness | Unreachable:
    from flyteidl.core.execution_pb2 import WorkflowExecution
    from flytekit.exceptions.user import FlyteEntityNotExistException
    from flytekit.models.core.identifier import WorkflowExecutionIdentifier

    try:
        execution = client.get_execution(WorkflowExecutionIdentifier(owner.project, owner.domain, owner.execution))
    except FlyteEntityNotExistException:
        return Unknown(f"flyteadmin knows no execution {owner}: is it the right Flyte?")
    except Exception as error:  # noqa: BLE001 - flytekit raises its own errors and gRPC's
        details = getattr(error, "details", None)
        return Unreachable(f"flyteadmin cannot be asked for {owner}: {details() if callable(details) else error}")
    closure = execution.closure
    phases = {number: name for name, number in WorkflowExecution.Phase.items()}
    phase = phases.get(int(closure.phase), "UNDEFINED")
    if phase not in _ENDED:
        return Alive(f"execution {owner} has not ended: it is {phase.lower()}")
    return Ended(f"execution {owner} {_ENDED[phase]}", _ended_at(closure), failed=phase in _FAILED)


def _ended_at(closure: Any) -> datetime | None:
    if closure.updated_at is not None:
        moment: datetime = closure.updated_at
    elif closure.started_at is not None and closure.duration is not None:
        moment = closure.started_at + closure.duration
    else:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
