"""How far a watch is believed, by what it was in contact with and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster.health import Health, Timing
from provisioner.errors import PermanentError, TransientError

TIMING = Timing(settle=1.0, gap=5.0, stale=45.0)
CUT = TransientError("the connection was cut", reason="Unreachable")
REFUSED = PermanentError("may not list pods", reason="Forbidden")
NEW = Health(contact=0.0)
OPEN = NEW.listed(0.0).begun(0.0)
BACK = OPEN.lost(2.0, CUT, TIMING).begun(5.5)


@pytest.mark.parametrize(
    ("health", "now", "reason"),
    [
        pytest.param(NEW, 1.0, "pods were not listed yet", id="new"),
        pytest.param(NEW.lost(1.0, CUT, TIMING), 1.0, "pods were not listed yet: the connection was cut", id="away"),
        pytest.param(NEW.listed(0.0), 5.0, "", id="listed"),
        pytest.param(NEW.listed(0.0), 6.0, "no word about pods for 6 s", id="listed, not watched"),
        pytest.param(OPEN, 45.0, "", id="quiet"),
        pytest.param(OPEN, 46.0, "no word about pods for 46 s", id="silent"),
        pytest.param(OPEN.heard(40.0, TIMING), 85.0, "", id="heard"),
        pytest.param(OPEN.lost(2.0, CUT, TIMING), 5.0, "", id="cut, heals soon"),
        pytest.param(OPEN.lost(2.0, CUT, TIMING), 6.0, "no word about pods for 6 s: the connection was cut", id="cut"),
        pytest.param(OPEN.ended(30.0, TIMING), 35.0, "", id="ended at its time"),
        pytest.param(OPEN.ended(30.0, TIMING), 36.0, "no word about pods for 6 s", id="not begun again"),
        pytest.param(OPEN.ended(30.0, TIMING).begun(30.1), 31.0, "", id="begun again, soon"),
        pytest.param(BACK, 6.0, "no word about pods for 6 s", id="owes what it missed"),
        pytest.param(BACK, 6.5, "", id="settled"),
        pytest.param(OPEN.heard(9.0, TIMING).lost(9.0, REFUSED, TIMING), 9.0, "may not list pods", id="refused"),
    ],
)
def test_why_a_watch_is_not_believed(health: Health, now: float, reason: str) -> None:
    assert health.stale("pods", now, TIMING) == reason


def test_answers_that_are_no_events_never_count_as_contact() -> None:
    """A proxy that answers each watch with its login page is no API server, however often it answers."""
    health = OPEN.heard(2.0, TIMING)
    for tenth in range(30, 90, 3):
        now = tenth / 10
        health = health.begun(now).lost(now + 0.1, CUT, TIMING)
    assert health.complete(9.0, TIMING) == 2.0
    assert health.stale("pods", 9.0, TIMING).startswith("no word about pods for 7 s")


def after(health: Health, what: str, now: float) -> Health:
    match what:
        case "listed":
            return health.listed(now)
        case "begun":
            return health.begun(now)
        case "heard":
            return health.heard(now, TIMING)
        case "ended":
            return health.ended(now, TIMING)
    return health.lost(now, CUT, TIMING)


@given(
    st.lists(
        st.tuples(
            st.floats(min_value=0.01, max_value=50.0), st.sampled_from(["listed", "begun", "heard", "ended", "lost"])
        ),
        max_size=30,
    )
)
def test_what_is_called_fresh_is_as_new_as_promised(steps: list[tuple[float, str]]) -> None:
    health, now, begun, interrupted = OPEN, 0.0, 0.0, 0.0
    for seconds, what in steps:
        before, now = health, now + seconds
        if what == "begun":
            health = health.ended(now, TIMING)  # the one before has an end
            begun = now
        health = after(health, what, now)
        if what != "heard":
            interrupted = now
        complete = health.complete(now, TIMING)
        assert before.complete(now, TIMING) <= complete <= now
        settled = health.opened is not None and now - begun >= TIMING.settle
        if not settled:
            assert complete <= interrupted
        if not health.stale("pods", now, TIMING):
            assert now - complete <= (TIMING.stale if settled else TIMING.gap)
