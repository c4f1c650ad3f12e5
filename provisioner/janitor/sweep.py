"""Carries a plan out, in bounded parallel, each step on what is true at its own moment.

Between the listing and a removal minutes may pass. So before each removal the
same questions are asked again about that one thing, and the same pure plan
answers: only if it still says the same is anything done. That something is
already gone is what was wanted. That it is gone is never concluded from an
answer 200, but looked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from provisioner.control.removal import take_down
from provisioner.engine import Cancellation, Engine
from provisioner.errors import PermanentError, ProvisionerError
from provisioner.identity import ANNOTATION_NOTICE
from provisioner.janitor.assess import notice_text
from provisioner.janitor.backend import Backend
from provisioner.janitor.decision import Action, Decision, Plan, Verdict
from provisioner.janitor.facts import Case, Inventory, ObjectFacts
from provisioner.janitor.gather import Gatherer
from provisioner.janitor.memory import Memory
from provisioner.janitor.objects import Objects
from provisioner.janitor.outcome import Outcome, Result
from provisioner.janitor.policy import Policy
from provisioner.janitor.remedies import recovery_steps
from provisioner.janitor.subject import CLAIM

# Seconds between two looks at objects that are on their way out.
_LOOK_SECONDS = 1.0
_BUSY = frozenset({"StackLocked"})

_log = structlog.get_logger(__name__)


class Sweeper:
    """Carries out decisions.

    Args:
        gatherer: Looks again.
        engine: Destroys stacks.
        backend: Prunes.
        objects: The cluster.
        memory: What is remembered.
        policy: How failures are repeated.
        destroy_timeout: Seconds for the destruction of one stack.
        verify_timeout: Seconds for its objects to be really gone.
        clock: The time, with its zone.
    """

    def __init__(
        self,
        gatherer: Gatherer,
        engine: Engine,
        backend: Backend,
        objects: Objects,
        memory: Memory,
        policy: Policy,
        *,
        destroy_timeout: float,
        verify_timeout: float,
        clock: Callable[[], datetime],
    ) -> None:
        self._gatherer = gatherer
        self._engine = engine
        self._backend = backend
        self._objects = objects
        self._memory = memory
        self._policy = policy
        self._destroy_timeout = destroy_timeout
        self._verify_timeout = verify_timeout
        self._clock = clock
        self._actions: dict[Action, Callable[[Decision, Inventory, Cancellation], Outcome]] = {
            Action.DESTROY: self._remove,
            Action.DELETE_OBJECTS: self._remove,
            Action.DELETE_VOLUMES: self._remove,
            Action.REMOVE_RECORD: self._remove,
            Action.NOTIFY: self._notify,
            Action.WITHDRAW: self._withdraw,
            Action.UNLOCK: self._unlock,
            Action.PRUNE: self._prune,
            Action.DELETE_LEASES: self._delete_leases,
        }

    def carry_out(
        self, plan: Plan, inventory: Inventory, parallel: int, cancellation: Cancellation
    ) -> tuple[Outcome, ...]:
        """Carry out a plan, the oldest removals first.

        Args:
            plan: What is to be done.
            inventory: What it was made from.
            parallel: Actions that run at once.
            cancellation: Ends the sweep: nothing more is begun, what runs is
                cancelled gracefully.
        """
        todo = [decision for decision in plan.decisions if decision.action is not Action.NONE]
        todo.sort(key=lambda item: (item.verdict is not Verdict.REMOVE, -(item.age or timedelta()).total_seconds()))
        with ThreadPoolExecutor(parallel, thread_name_prefix="sweep") as workers:
            return tuple(workers.map(lambda decision: self._one(decision, inventory, cancellation), todo))

    def _one(self, decision: Decision, inventory: Inventory, cancellation: Cancellation) -> Outcome:
        if cancellation.cancelled:
            return Outcome(decision, Result.STOPPED, "the sweep was to end")
        try:
            outcome = self._actions[decision.action](decision, inventory, cancellation)
        except ProvisionerError as error:
            outcome = self._failed(decision, inventory, error, cancellation)
        except Exception as error:  # noqa: BLE001 - one faulty action must not end the sweep
            _log.exception("an action raised what it must not", stack_name=decision.stack, action=decision.action.value)
            fault = PermanentError(
                f"{type(error).__name__}: {error}",
                reason="InternalError",
                hint="a fault of the janitor: its log has the traceback",
            )
            outcome = self._failed(decision, inventory, fault, cancellation)
        _log_outcome(outcome)
        return outcome

    def _remove(self, decision: Decision, inventory: Inventory, cancellation: Cancellation) -> Outcome:
        now, again = self._gatherer.one(decision.stack, inventory)
        current = next((item for item in again.decisions if item.verdict is Verdict.REMOVE), None)
        if not (decision.stack in now.stacks or decision.stack in now.objects):
            self._memory.forget(decision.stack)
            return Outcome(decision, Result.GONE, "it was gone already")
        if current is None or current.action is not decision.action:
            held = next((item for item in again.decisions if item.stack == decision.stack), None)
            message = f"{held.reason}: {held.message}" if held is not None else "its reason does not hold any more"
            busy = held is not None and held.unsettled
            return Outcome(decision, Result.BUSY if busy else Result.CHANGED, message)
        found = now.objects.get(decision.stack, ())
        # Before, since nothing can be said about an object once its namespace is gone as well.
        self._say(found, "GarbageCollecting", f"{decision.reason}: {decision.message}", warning=False)
        if decision.action is Action.REMOVE_RECORD:
            self._engine.stack(decision.stack).forget()
            left: list[str] = []
        else:
            if decision.action is Action.DESTROY:
                self._destroy(decision, now, cancellation)
            left = self._delete_and_verify(decision, cancellation)
        if left:
            return Outcome(decision, Result.UNDONE, f"still there: {', '.join(left)}")
        self._delete_leases_over(decision.stack, now)
        self._memory.forget(decision.stack)
        return Outcome(decision, Result.DONE)

    def _destroy(self, decision: Decision, now: Inventory, cancellation: Cancellation) -> None:
        checkpoint = now.stacks[decision.stack].checkpoint
        identity = checkpoint.identity if checkpoint is not None else None
        foreign = self._objects.foreign(identity) if identity is not None else []
        stack = self._engine.stack(decision.stack)
        take_down(stack, foreign, deadline=self._destroy_timeout, cancellation=cancellation)

    def _delete_and_verify(self, decision: Decision, cancellation: Cancellation) -> list[str]:
        """Delete what is there under the label, and look until it is gone; gives what is left.

        Claims stay when their service goes: those that are to go with it are
        owned by its StatefulSet, and Kubernetes removes them.
        """
        volumes = decision.action is Action.DELETE_VOLUMES
        end = time.monotonic() + self._verify_timeout
        while True:
            labelled = self._objects.labelled(decision.stack)
            mine = [item for item in labelled.objects.get(decision.stack, ()) if (item.kind == CLAIM) is volumes]
            for item in mine:
                if item.deleted is None:
                    self._objects.delete(item)
            left = [*mine, *(labelled.dependents.get(decision.stack, ()) if not volumes else ())]
            if not left:
                return []
            if time.monotonic() >= end or cancellation.cancelled:
                return [str(item) for item in left]
            time.sleep(_LOOK_SECONDS)

    def _notify(self, decision: Decision, inventory: Inventory, _: Cancellation) -> Outcome:
        assert decision.case is not None  # noqa: S101 - what is notified about is remembered
        assert decision.due is not None  # noqa: S101
        self._memory.remember(decision.case)
        found = inventory.objects.get(decision.stack, ())
        services = [item for item in found if item.kind != CLAIM] or list(found)
        text = notice_text(decision.due, decision.reason)
        told = [item for item in services if self._objects.annotate(item, text)]
        self._say(tuple(told), "GarbageCollectionNotice", decision.message, warning=True)
        return Outcome(decision, Result.DONE)

    def _withdraw(self, decision: Decision, inventory: Inventory, _: Cancellation) -> Outcome:
        warned = [item for item in inventory.objects.get(decision.stack, ()) if ANNOTATION_NOTICE in item.annotations]
        told = [item for item in warned if self._objects.annotate(item, None)]
        self._say(tuple(told), "GarbageCollectionWithdrawn", f"{decision.reason}: {decision.message}", warning=False)
        self._memory.forget(decision.stack)
        return Outcome(decision, Result.DONE)

    def _unlock(self, decision: Decision, _: Inventory, __: Cancellation) -> Outcome:
        self._engine.stack(decision.stack).unlock()
        return Outcome(decision, Result.DONE)

    def _prune(self, decision: Decision, inventory: Inventory, _: Cancellation) -> Outcome:
        if decision.stack in inventory.surplus:
            self._backend.prune_backups(decision.stack)
        else:
            self._engine.stack(decision.stack).tidy()
        return Outcome(decision, Result.DONE)

    def _delete_leases(self, decision: Decision, inventory: Inventory, _: Cancellation) -> Outcome:
        self._delete_leases_over(decision.stack, inventory)
        return Outcome(decision, Result.DONE)

    def _delete_leases_over(self, stack: str, inventory: Inventory) -> None:
        now = self._clock()
        for lease in self._objects.labelled(stack).leases.get(stack, ()):
            if inventory.end_of(lease, now) is not None:
                self._objects.delete_lease(lease)

    def _failed(
        self, decision: Decision, inventory: Inventory, error: ProvisionerError, cancellation: Cancellation
    ) -> Outcome:
        if error.reason in _BUSY:
            return Outcome(decision, Result.BUSY, error.message)
        if cancellation.cancelled:
            return Outcome(decision, Result.STOPPED, error.message)
        message = error.message
        self._say(inventory.objects.get(decision.stack, ()), "GarbageCollectionFailed", message, warning=True)
        if decision.verdict is Verdict.REMOVE and decision.case is not None:
            case = self._with_failure(decision.case, error, decision.stack)
            try:
                self._memory.remember(case)
            except ProvisionerError as unsaved:
                message += f" (and that could not be noted: {unsaved.message})"
        return Outcome(decision, Result.FAILED, message, error.hint)

    def _with_failure(self, case: Case, error: ProvisionerError, stack: str) -> Case:
        failures = case.failures + 1
        return replace(
            case,
            failures=failures,
            retry_at=self._clock() + self._policy.retry.delay(failures),
            error_reason=error.reason,
            error=error.message[:500],
            steps=recovery_steps(error, stack),
        )

    def _say(self, objects: tuple[ObjectFacts, ...], reason: str, message: str, *, warning: bool) -> None:
        """Say it about the first of some objects; that this may not be allowed stops nothing."""
        for item in objects[:1]:
            try:
                self._objects.say(item, reason, message, warning=warning, now=self._clock())
            except ProvisionerError as error:
                _log.warning("an event could not be written", stack_name=item.stack, error=error.message)


def _log_outcome(outcome: Outcome) -> None:
    decision = outcome.decision
    bound = _log.bind(stack_name=decision.stack, action=decision.action.value, result=outcome.result.value)
    if outcome.result is Result.FAILED:
        bound.error("action failed", error=outcome.message, hint=outcome.hint)
    else:
        bound.info("carried out", message=outcome.message)
