"""Status as a pure function: never more optimistic than the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster import Diagnosis, Readiness
from provisioner.control.derive import derive
from provisioner.control.queue import Intent, Kind, View
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import for_name
from provisioner.spec import parse_spec

NOW = 1000.0
REQUEST = ServiceRequest(
    for_name("p", "d", namespace="n", name="graph"),
    parse_spec({"image": "a", "ports": [{"name": "main", "port": 9000}], "replicas": 2, "startDeadline": "60s"}),
    NOW,
)
DONE = Readiness(2, 2, True, "all 2 replicas are ready")
WAITING = Readiness(1, 2, False, "1 of 2 replicas are ready")
APPLIED = View(Intent(Kind.APPLY, REQUEST), None, True, None, "", 0, False, ("create Service",), NOW)
BROKEN = Diagnosis(
    "error", "CrashLoop", "pod n/graph-0", "container ended with exit code 3", "boom", "mend it", True, False, None
)


def status(view: View = APPLIED, *, readiness=WAITING, diagnosis=None, fresh=True, now=NOW):
    return derive(REQUEST, view, readiness=readiness, diagnosis=diagnosis, fresh=fresh, now=now)


def test_ready_has_every_endpoint_and_the_changes():
    found = status(readiness=DONE)
    assert found.phase is Phase.READY
    assert [str(endpoint) for endpoint in found.endpoints] == [
        "graph-0.graph.n.svc.cluster.local:9000",
        "graph-1.graph.n.svc.cluster.local:9000",
    ]
    assert found.changes == ("create Service",)


def test_a_view_that_is_not_fresh_is_never_ready():
    assert status(readiness=DONE, fresh=False).phase is Phase.STARTING


@pytest.mark.parametrize(
    ("running", "phase", "message"),
    [
        (None, Phase.QUEUED, "waits for a worker; 2 of 2 replicas are ready"),
        (Kind.APPLY, Phase.APPLYING, "its stack is being applied; 2 of 2 replicas are ready"),
    ],
)
def test_replicas_that_are_ready_before_the_record_are_counted_and_do_not_make_it_ready(
    running: Kind | None, phase: Phase, message: str
):
    found = status(replace(APPLIED, running=running, settled=False), readiness=DONE)
    assert (found.phase, found.ready, found.endpoints, found.message) == (phase, 2, (), message)
    failing = replace(APPLIED, running=running, settled=False, error=TransientError("away"), failures=1)
    assert (status(failing, readiness=DONE).phase, status(failing, readiness=DONE).ready) == (phase, 2)


BEGUN = replace(APPLIED, settled=False)


def test_what_is_broken_before_it_is_applied_fails_as_it_would_afterwards():
    assert status(BEGUN, diagnosis=BROKEN) == replace(status(diagnosis=BROKEN), changes=())
    late = replace(BROKEN, final=False)
    assert status(BEGUN, diagnosis=late, now=NOW + 61) == replace(status(diagnosis=late, now=NOW + 61), changes=())


def test_what_is_wrong_before_it_is_applied_is_told_beside_what_is_waited_for():
    found = status(BEGUN, diagnosis=replace(BROKEN, final=False))
    assert (found.phase, found.reason, found.hint) == (Phase.QUEUED, "CrashLoop", "mend it")
    assert found.message == "waits for a worker; container ended with exit code 3"
    # Why it is not applied matters more.
    failing = replace(BEGUN, error=TransientError("away", reason="Unreachable"), failures=1)
    assert status(failing, diagnosis=replace(BROKEN, final=False)).reason == "Unreachable"


def test_nothing_fails_by_what_is_not_fresh_before_it_is_applied():
    assert status(BEGUN, diagnosis=BROKEN, fresh=False).phase is Phase.QUEUED


def test_what_was_ready_stays_ready_after_the_start_deadline():
    assert status(readiness=DONE, now=NOW + 3600).phase is Phase.READY


def test_final_diagnosis_fails_with_cause_and_next_step():
    found = status(diagnosis=BROKEN)
    assert (found.phase, found.reason, found.hint) == (Phase.FAILED, "CrashLoop", "mend it")
    assert found.message == "container ended with exit code 3"


def test_a_log_is_shown_below_the_cause_that_quotes_its_last_line():
    log = "loading\nboom"
    found = status(diagnosis=replace(BROKEN, summary="container ended; last line: boom", detail=log))
    assert found.message == f"container ended; last line: boom\n{log}"


def test_diagnosis_within_its_grace_is_shown_and_waited_for():
    found = status(diagnosis=replace(BROKEN, final=False))
    assert (found.phase, found.reason) == (Phase.STARTING, "CrashLoop")


def test_deadline_names_what_was_missing():
    found = status(now=NOW + 60)
    assert (found.phase, found.reason) == (Phase.FAILED, "StartDeadlineExceeded")
    assert "1m" in found.message
    assert "1 of 2 replicas" in found.message


def test_a_lifetime_is_no_start_deadline_and_a_restart_begins_neither_anew():
    spec = REQUEST.spec.model_copy(update={"ttl": 30})
    # What a server reads from the meta after a restart.
    request = ServiceRequest.from_document(replace(REQUEST, spec=spec).document())
    told = {"readiness": WAITING, "diagnosis": None, "fresh": True}
    assert derive(request, APPLIED, now=NOW + 45, **told).phase is Phase.STARTING
    assert derive(request, APPLIED, now=NOW + 60, **told).reason == "StartDeadlineExceeded"
    assert (request.spec.ttl, request.deadline) == (30, NOW + 60)


def test_deadline_is_not_judged_by_an_old_view():
    assert status(now=NOW + 60, fresh=False).phase is Phase.STARTING


@pytest.mark.parametrize(("running", "phase"), [(None, Phase.QUEUED), (Kind.APPLY, Phase.APPLYING)])
def test_on_the_way(running: Kind | None, phase: Phase):
    assert status(replace(APPLIED, settled=False, running=running)).phase is phase


def test_what_an_operation_waits_for_is_named_also_at_the_deadline():
    waits = replace(APPLIED, settled=False, waiting="StatefulSet graph of an earlier service still there")
    assert status(waits).message == waits.waiting
    late = status(waits, now=NOW + REQUEST.spec.start_deadline)
    assert late.phase is Phase.FAILED
    assert waits.waiting in late.message


def test_transient_error_is_told_while_it_is_tried_again():
    view = replace(APPLIED, settled=False, error=TransientError("API server away", hint="wait"), failures=2)
    found = status(view)
    assert found.phase is Phase.QUEUED
    assert "API server away" in found.message
    assert "2 times" in found.message


def test_transient_errors_end_at_the_deadline():
    view = replace(APPLIED, settled=False, error=TransientError("API server away"), failures=9)
    found = status(view, now=NOW + 60)
    assert (found.phase, found.reason) == (Phase.FAILED, "StartDeadlineExceeded")
    assert "API server away" in found.message


def test_an_operation_that_fails_again_and_again_is_stalled_and_says_why():
    error = TransientError("API server away", reason="ClusterUnreachable", hint="start it")
    view = replace(APPLIED, settled=False, error=error, failures=8, stalled=True)
    found = status(view)
    assert found.stalled
    assert (found.phase, found.reason, found.hint) == (Phase.QUEUED, "ClusterUnreachable", "start it")
    assert found.message == "stalled, failed 8 times and is still tried: API server away"
    assert not status(replace(view, failures=7, stalled=False)).stalled


def test_permanent_error_fails():
    found = status(replace(APPLIED, error=PermanentError("no", reason="Forbidden", hint="grant it")))
    assert (found.phase, found.reason, found.hint) == (Phase.FAILED, "Forbidden", "grant it")


def test_removal_until_nothing_is_left():
    removing = replace(APPLIED, intent=Intent(Kind.REMOVE, REQUEST), settled=False, waiting="Pod n/graph-0 still there")
    assert (status(removing).phase, status(removing).message) == (Phase.REMOVING, "Pod n/graph-0 still there")
    assert status(replace(removing, settled=True, waiting="")).phase is Phase.GONE


def test_removal_that_fails_is_not_gone():
    error = PermanentError("not allowed", reason="Forbidden")
    removing = replace(
        APPLIED, intent=Intent(Kind.REMOVE, REQUEST), settled=False, error=error, failures=9, stalled=True
    )
    found = status(removing)
    assert (found.phase, found.reason) == (Phase.REMOVING, "Forbidden")
    assert "9 times" in found.message
    assert found.stalled


views = st.builds(
    lambda kind, running, settled, error, failures: View(
        Intent(kind, REQUEST), running, settled, error, "", failures, failures > 3, (), NOW
    ),
    st.sampled_from(Kind),
    st.none() | st.sampled_from(Kind),
    st.booleans(),
    st.none() | st.just(TransientError("t")) | st.just(PermanentError("p")),
    st.integers(0, 5),
)


@given(
    views,
    st.sampled_from([DONE, WAITING]),
    st.none() | st.just(BROKEN) | st.just(replace(BROKEN, final=False)),
    st.booleans(),
    st.sampled_from([NOW, NOW + 1000]),
)
def test_ready_only_when_applied_seen_and_fresh(view, readiness, diagnosis, fresh, now):
    found = status(view, readiness=readiness, diagnosis=diagnosis, fresh=fresh, now=now)
    applied = view.intent.kind is Kind.APPLY and view.settled and view.error is None
    if found.phase is Phase.READY:
        assert applied
        assert readiness.done
        assert fresh
    if found.phase is Phase.GONE:
        assert view.intent.kind is Kind.REMOVE
        assert view.settled
    if found.phase is Phase.FAILED:
        assert found.reason
        assert found.message
