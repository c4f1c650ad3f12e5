"""Between two attempts the watch waits longer each time, up to a bound, and never not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster import Timing
from provisioner.cluster.reflector import Backoff


@given(st.floats(0.01, 1), st.floats(1, 60), st.integers(1, 2000))
def test_delays_double_up_to_the_longest(first: float, longest: float, attempts: int) -> None:
    backoff = Backoff(Timing(first_delay=first, longest_delay=longest))
    ceiling = first
    for _ in range(attempts):
        assert ceiling / 2 <= backoff.next() <= ceiling
        ceiling = min(longest, ceiling * 2)
    backoff.reset()
    assert backoff.next() <= first
