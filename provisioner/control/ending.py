"""The end of an execution's use of a service, asked for by its name: given back, removed if it is its own, verified.

What is removed is what belongs to the execution, and what was shared and has
no other user. A service of another execution, or of nobody, is given back and
stays. Gone means that the API server shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from provisioner.control.chores import Chores
from provisioner.control.request import ServiceRequest
from provisioner.control.sharing import Leave, belongs, not_yours
from provisioner.control.status import Phase, Status
from provisioner.control.usage import Usage
from provisioner.errors import RefusedError
from provisioner.identity import Identity, User, for_name

# What is on its way out without a record is looked at this often.
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class _Removal:
    """It is to go, unless others use it."""

    request: ServiceRequest


@dataclass(frozen=True)
class _Stays:
    """It was given back, and is not this execution's to remove."""

    stack: str
    why: str


@dataclass(frozen=True)
class _Unrecorded:
    """No record of it; what the API server still shows."""

    left: tuple[str, ...]


class Ending:
    """Ends uses of services.

    Args:
        usage: Gives Leases back.
        recorded: Reads back what was asked for a stack; None when there is no such stack.
        located: The stack of a service by namespace and name, from memory; None when none is shown.
        remaining: What the API server still shows of a service.
        made: Names of the services in a namespace that carry some labels, from the API server.
        leave: Removes a service unless somebody uses it.
    """

    def __init__(
        self,
        usage: Usage,
        recorded: Callable[[str], ServiceRequest | None],
        located: Callable[[str, str], str | None],
        remaining: Callable[[Identity], list[str]],
        made: Callable[[str, Mapping[str, str]], list[str]],
        leave: Leave,
    ) -> None:
        self._usage = usage
        self._recorded = recorded
        self._located = located
        self._remaining = remaining
        self._made = made
        self._leave = leave
        self._chores = Chores()

    def stop(self) -> None:
        """Begin nothing more."""
        self._chores.stop()

    def end(self, namespace: str, service: str, user: User) -> Status:
        """End the use of a service by a whole execution, and say how far that is.

        Answers from memory; to be called again until the phase is final.

        Args:
            namespace: Its namespace.
            service: Its name.
            user: Whose use ends.

        Returns:
            `Gone`, `InUse` for one that stays, `Removing` until then, or `Failed`.

        Raises:
            TransientError: Something could not be asked; it is repeated.
        """
        status = self._ended(namespace, service, user)
        if status.final:
            # The execution may use it anew, and end that as well.
            self._chores.forget(_key(namespace, service, user))
        return status

    def end_all(self, namespace: str, user: User) -> Status:
        """End every service that an execution has made, and say how far that is.

        Answers from memory; to be called again until the phase is final.

        Args:
            namespace: Theirs.
            user: Whose services end.

        Returns:
            `Gone`, `Removing` until then, or `Failed` for the first that is.

        Raises:
            TransientError: Something could not be asked; it is repeated.
        """
        labels = Identity(user.project, user.domain, namespace, "", "", user.execution).owner_labels()
        every = _key(namespace, "*", user)
        outcome = self._chores.ask(every, lambda: self._made(namespace, labels), fresh=lambda _: float("inf"))
        if outcome is None:
            return Status("", Phase.REMOVING, message="its services are being looked for")
        if outcome.error is not None:
            raise outcome.error
        names: list[str] = outcome.value
        found = {name: self._ended(namespace, name, user) for name in names}
        waiting = [f"{name}: {status.message}" for name, status in found.items() if not status.final]
        if waiting:
            return Status("", Phase.REMOVING, message="; ".join(waiting))
        for key in (every, *(_key(namespace, name, user) for name in names)):
            self._chores.forget(key)
        failed = [status for status in found.values() if status.phase is Phase.FAILED]
        if failed:
            return failed[0]
        message = f"{', '.join(names)}: ended" if names else "it has no service"
        return Status("", Phase.GONE, message=message)

    def _ended(self, namespace: str, service: str, user: User) -> Status:
        key = _key(namespace, service, user)
        outcome = self._chores.ask(key, lambda: self._begin(namespace, service, user), fresh=_fresh)
        if outcome is None:
            return Status(service, Phase.REMOVING, message="its use is being ended")
        if isinstance(outcome.error, RefusedError):
            error = outcome.error
            return Status(service, Phase.FAILED, error.reason, error.message, error.hint)
        if outcome.error is not None:
            raise outcome.error
        found = outcome.value
        if isinstance(found, _Removal):
            return self._leave(found.request)
        if isinstance(found, _Stays):
            return Status(found.stack, Phase.IN_USE, message=found.why)
        assert isinstance(found, _Unrecorded)  # noqa: S101 - one of three
        if found.left:
            return Status(service, Phase.REMOVING, message=f"{', '.join(found.left)} still there")
        return Status(service, Phase.GONE, message="nothing of it is left")

    def _begin(self, namespace: str, service: str, user: User) -> _Removal | _Stays | _Unrecorded:
        named = for_name(user.project, user.domain, namespace=namespace, name=service)
        shown = self._located(namespace, service)
        # A service is called as its stack when Flyte made it for a task, and by its own name otherwise.
        stacks = dict.fromkeys([shown] if shown is not None else [service, named.stack])
        records = [record for stack in stacks if (record := self._recorded(stack)) is not None]
        for record in records:
            identity = record.identity
            if not belongs(identity, user) or (identity.namespace, identity.service) != (namespace, service):
                raise not_yours(namespace, service, user)
            alone = self._usage.give_back(identity, user, whole_execution=True)
            if identity.owner == user.execution or record.shared or alone:
                if record.spec.deletion_policy == "Retain":
                    return _Stays(record.stack, "its use has ended; its deletion policy keeps it")
                self._leave(record, anew=True)
                return _Removal(record)
            whose = f"execution {identity.owner}" if identity.owner else "no execution, and stays until it is deleted"
            return _Stays(record.stack, f"its use has ended; it belongs to {whose}")
        left = [item for stack in stacks for item in self._remaining(replace(named, stack=stack))]
        return _Unrecorded(tuple(left))


def _key(namespace: str, service: str, user: User) -> tuple[str, ...]:
    return ("end", namespace, service, user.of_execution)


def _fresh(value: object) -> float:
    return _LOOK_SECONDS if isinstance(value, _Unrecorded) and value.left else float("inf")
