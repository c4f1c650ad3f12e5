"""The queue's guarantees, checked by a state machine and by examples."""

import dataclasses

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from provisioner.cluster.objects import Pod
from provisioner.control.queue import (
    Again,
    Backoff,
    Begun,
    Done,
    Failed,
    Intent,
    KeyedQueue,
    Kind,
    Lane,
    Operation,
    Outcome,
    Withdrawn,
)
from provisioner.control.request import ServiceRequest
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import for_name
from provisioner.spec import parse_spec

STUCK = Pod(name="a-0", namespace="n")
BACKOFF = Backoff(first=1.0, cap=8.0, stalled_after=3)


def request(name: str = "a", *, project: str = "p", replicas: int = 1) -> ServiceRequest:
    spec = parse_spec({"image": "a", "ports": [{"name": "p", "port": 1}], "replicas": replicas})
    return ServiceRequest(for_name(project, "d", namespace="n", name=name), spec, 0.0)


def apply(name: str = "a", **change: object) -> Intent:
    return Intent(Kind.APPLY, request(name, **change))


def remove(name: str = "a") -> Intent:
    return Intent(Kind.REMOVE, request(name))


@pytest.fixture
def queue() -> KeyedQueue:
    return KeyedQueue(BACKOFF, jitter=lambda: 1.0)


def take(queue: KeyedQueue, now: float) -> Operation | None:
    """The next operation that may use an engine; what is to be begun before that is."""
    while (operation := queue.take(now, Lane.BEGIN)) is not None:
        queue.finish(operation, Begun(), now)
    return queue.take(now, Lane.ENGINE)


def test_what_is_new_is_begun_before_it_waits_for_an_engine(queue: KeyedQueue):
    queue.submit(apply(), 0)
    assert queue.take(0, Lane.ENGINE) is None
    begun = queue.take(0, Lane.BEGIN)
    assert (begun.name, begun.lane) == ("begin", Lane.BEGIN)
    assert queue.take(0, Lane.BEGIN) is None, "one operation per key"
    queue.finish(begun, Begun(), 1)
    assert not queue.view(apply().key).settled
    assert queue.take(1, Lane.BEGIN) is None
    operation = queue.take(3, Lane.ENGINE)
    assert (operation.name, operation.waited) == ("apply", 2)


def test_what_needs_no_engine_never_waits_for_one(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(queue.take(0, Lane.BEGIN), Done(), 1)
    assert queue.view(apply().key).settled
    assert queue.take(1, Lane.ENGINE) is None


@pytest.mark.parametrize(
    "intent", [remove(), dataclasses.replace(apply(), repair=True), dataclasses.replace(apply(), stuck=(STUCK,))]
)
def test_a_removal_a_repair_and_a_rollout_that_is_held_up_need_no_beginning(queue: KeyedQueue, intent: Intent):
    queue.submit(intent, 0)
    assert queue.take(0, Lane.BEGIN) is None
    assert queue.take(0, Lane.ENGINE).intent is intent


def test_a_beginning_that_failed_is_tried_again_and_an_engine_that_failed_begins_nothing_anew(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(queue.take(0, Lane.BEGIN), Failed(TransientError("away")), 0)
    assert queue.take(1, Lane.ENGINE) is None
    queue.finish(queue.take(1, Lane.BEGIN), Begun(), 1)
    queue.finish(queue.take(1, Lane.ENGINE), Failed(TransientError("away")), 1)
    assert queue.take(9, Lane.BEGIN) is None
    assert queue.take(9, Lane.ENGINE) is not None


def test_a_removal_of_what_is_queued_to_be_begun_takes_its_place(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.submit(remove(), 0)
    assert len(queue) == 1
    assert queue.take(0, Lane.BEGIN) is None
    assert queue.take(0, Lane.ENGINE).intent.kind is Kind.REMOVE
    assert len(queue) == 0


def test_who_changes_lanes_to_and_fro_runs_once(queue: KeyedQueue):
    for intent in (apply(), remove(), apply()):
        queue.submit(intent, 0)
    assert len(queue) == 1
    assert queue.take(0, Lane.ENGINE) is None
    assert queue.take(0, Lane.BEGIN).intent.kind is Kind.APPLY
    assert queue.take(0, Lane.BEGIN) is None
    assert len(queue) == 0


def test_a_key_that_is_forgotten_leaves_nothing_that_runs(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.submit(remove(), 0)
    queue.finish(queue.take(0, Lane.ENGINE), Done(), 0)
    assert queue.forget(apply().key)
    assert queue.take(0, Lane.BEGIN) is None


def test_equal_intent_changes_nothing(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(take(queue, 0), Done(("created",)), 1)
    assert queue.submit(apply(), 2) is None
    assert take(queue, 2) is None
    assert queue.view(apply().key).changes == ("created",)


def test_changed_spec_runs_again(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(take(queue, 0), Done(), 1)
    queue.submit(apply(replicas=2), 2)
    assert take(queue, 2).intent.request.spec.replicas == 2


def test_removal_cancels_what_runs(queue: KeyedQueue):
    queue.submit(apply(), 0)
    running = take(queue, 0)
    assert queue.submit(remove(), 1) is running
    assert take(queue, 1) is None, "one operation per key"
    queue.finish(running, Failed(TransientError("cancelled")), 2)
    assert take(queue, 2).intent.kind is Kind.REMOVE


def test_newer_spec_waits_for_the_running_one(queue: KeyedQueue):
    queue.submit(apply(), 0)
    running = take(queue, 0)
    assert queue.submit(apply(replicas=2), 1) is None
    assert queue.submit(apply(replicas=3), 1) is None
    queue.finish(running, Done(), 2)
    assert take(queue, 2).intent.request.spec.replicas == 3


def test_transient_failures_back_off_to_a_cap_and_stall(queue: KeyedQueue):
    queue.submit(apply(), 0)
    now, waits = 0.0, []
    for _ in range(6):
        queue.finish(take(queue, now), Failed(TransientError("away")), now)
        assert take(queue, now) is None
        waits.append(queue.next_due() - now)
        now = queue.next_due()
    assert waits == [1, 2, 4, 8, 8, 8]
    view = queue.view(apply().key)
    assert view.stalled
    assert not view.settled


def test_success_ends_the_count_of_failures(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(take(queue, 0), Failed(TransientError("away")), 0)
    queue.finish(take(queue, 1), Done(), 1)
    assert queue.view(apply().key).failures == 0


def test_permanent_failure_settles_an_apply_but_not_a_removal(queue: KeyedQueue):
    queue.submit(apply("a"), 0)
    queue.submit(remove("b"), 0)
    for _ in range(2):
        queue.finish(take(queue, 0), Failed(PermanentError("no")), 0)
    assert queue.view(apply("a").key).settled
    assert not queue.view(remove("b").key).settled
    assert take(queue, 1).intent.kind is Kind.REMOVE


def test_again_is_not_a_failure(queue: KeyedQueue):
    queue.submit(remove(), 0)
    queue.finish(take(queue, 0), Again(2.0, "pods"), 0)
    view = queue.view(remove().key)
    assert (view.failures, view.waiting, view.settled) == (0, "pods", False)
    assert take(queue, 1.9) is None
    assert take(queue, 2.0) is not None


def test_what_was_removed_elsewhere_is_gone_and_may_be_asked_for_again(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(take(queue, 0), Withdrawn(), 1)
    view = queue.view(apply().key)
    assert (view.intent.kind, view.settled, view.error) == (Kind.REMOVE, True, None)
    assert take(queue, 100) is None
    queue.submit(apply(), 2)
    assert take(queue, 2).intent.kind is Kind.APPLY


def test_an_operation_says_how_long_it_waited(queue: KeyedQueue):
    queue.submit(apply(), 10)
    operation = queue.take(12.5, Lane.BEGIN)
    assert operation.waited == 2.5
    # A delay is no wait: that begins when it is over.
    queue.finish(operation, Failed(TransientError("away")), 13)
    assert queue.take(15, Lane.BEGIN).waited == 1.0


def test_views_are_of_every_key(queue: KeyedQueue):
    queue.submit(apply("a"), 0)
    queue.submit(remove("b"), 0)
    assert {view.intent.kind for view in queue.views()} == set(Kind)


@pytest.mark.parametrize("lane", Lane)
def test_projects_take_turns(queue: KeyedQueue, lane: Lane):
    for index in range(5):
        queue.submit(apply(f"big-{index}", project="big"), 0)
    queue.submit(apply("small", project="small"), 0)
    if lane is Lane.ENGINE:
        while (operation := queue.take(0, Lane.BEGIN)) is not None:
            queue.finish(operation, Begun(), 0)
    projects = [queue.take(0, lane).intent.request.identity.project for _ in range(3)]
    assert projects == ["big", "small", "big"]


def test_new_intent_during_backoff_is_due_at_once(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(take(queue, 0), Failed(TransientError("away")), 0)
    queue.submit(remove(), 0.1)
    assert take(queue, 0.1).intent.kind is Kind.REMOVE
    assert take(queue, 5) is None, "the old delay must not bring it twice"


def test_forced_repeat_runs(queue: KeyedQueue):
    queue.submit(apply(), 0)
    queue.finish(take(queue, 0), Done(), 0)
    queue.submit(apply(), 1, force=True)
    assert take(queue, 1) is not None


def test_forget_keeps_what_is_not_settled(queue: KeyedQueue):
    queue.submit(apply("a"), 0)
    queue.submit(apply("b"), 0)
    queue.finish(take(queue, 0), Done(), 0)
    assert queue.settled_before(1) == [apply("a").key]
    assert queue.forget(apply("a").key)
    assert not queue.forget(apply("b").key)
    assert queue.view(apply("a").key) is None


def test_foreign_operation_cannot_finish(queue: KeyedQueue):
    queue.submit(apply(), 0)
    running = take(queue, 0)
    with pytest.raises(ValueError, match="does not run"):
        queue.finish(dataclasses.replace(running, number=99), Done(), 0)


class Guarantees(RuleBasedStateMachine):
    """Random submissions and endings; the module's guarantees hold throughout."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.queue = KeyedQueue(BACKOFF, jitter=lambda: 0.5)
        self.now = 0.0
        self.wanted: dict[str, Intent] = {}
        self.active: dict[str, Operation] = {}
        self.begun: dict[str, Intent] = {}

    @rule(name=st.sampled_from("abc"), kind=st.sampled_from(Kind), replicas=st.integers(1, 2))
    def submit(self, name: str, kind: Kind, replicas: int) -> None:
        intent = Intent(kind, request(name, project=name, replicas=replicas))
        previous = self.wanted.get(intent.key)
        cancelled = self.queue.submit(intent, self.now)
        if previous is None or not previous.same(intent):
            self.wanted[intent.key] = intent
        if cancelled is not None:
            assert cancelled == self.active[intent.key]
            assert (cancelled.intent.kind, intent.kind) == (Kind.APPLY, Kind.REMOVE)

    @rule(target=running, lane=st.sampled_from(Lane))
    def take(self, lane: Lane) -> Operation | None:
        operation = self.queue.take(self.now, lane)
        if operation is not None:
            assert operation.intent.key not in self.active, "two at once for one key"
            assert operation.intent is self.wanted[operation.intent.key], "not the newest intent"
            assert operation.lane is lane
            if operation.intent.kind is Kind.APPLY and lane is Lane.ENGINE:
                assert self.begun.get(operation.intent.key) is operation.intent, "an engine before the beginning"
            self.active[operation.intent.key] = operation
        return operation

    @rule(
        operation=consumes(running),
        outcome=st.sampled_from([Done(), Again(1.0, "wait"), Failed(TransientError("t")), Failed(PermanentError("p"))]),
        begins=st.booleans(),
    )
    def finish(self, operation: Operation | None, outcome: Outcome, begins: bool) -> None:
        if operation is not None:
            del self.active[operation.intent.key]
            if begins and operation.lane is Lane.BEGIN:
                outcome, self.begun[operation.intent.key] = Begun(), operation.intent
            self.queue.finish(operation, outcome, self.now)

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        for key, intent in self.wanted.items():
            view = self.queue.view(key)
            assert view.intent is intent
            assert (view.running is not None) == (key in self.active)

    def teardown(self) -> None:
        for operation in self.active.values():
            self.queue.finish(operation, Done(), self.now)
        for _ in range(20 * (len(self.wanted) + 1)):
            self.now += BACKOFF.cap
            for lane in Lane:
                operation = self.queue.take(self.now, lane)
                if operation is not None:
                    self.queue.finish(operation, Begun() if lane is Lane.BEGIN else Done(), self.now)
        assert all(self.queue.view(key).settled for key in self.wanted), "an intent was never settled"
        assert len(self.queue) == 0


TestGuarantees = Guarantees.TestCase
TestGuarantees.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
