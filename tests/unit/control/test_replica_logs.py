"""Pages of logs: each line once and in order, whatever the size of a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.control.replica_logs import LogEntry, page_of, read_token, write_token
from provisioner.errors import UsageError

PODS = ("store-0", "store-1")


def entries(count: int) -> list[LogEntry]:
    """Lines of two pods, of which every second writes shorter fractions of a second."""
    found = []
    for index in range(count):
        fraction = f".{index:09d}".rstrip("0").rstrip(".")
        found.append(LogEntry(f"2026-05-09T07:00:00{fraction}Z", PODS[index % 2], f"line {index}"))
    return found


@given(st.integers(1, 60), st.integers(1, 25))
def test_pages_together_are_the_whole_log(count: int, size: int) -> None:
    everything = entries(count)
    first = page_of(everything, {}, size)
    assert [entry.text for entry in first.entries] == [f"line {index}" for index in range(count)][-size:]
    # From an early token on: nothing twice, nothing left out.
    early = dict.fromkeys(PODS, "2026-05-09T06:00:00Z")
    read: list[LogEntry] = []
    while (page := page_of(everything, early, size)).entries:
        read += page.entries
        early = read_token(page.token)
    assert [entry.text for entry in read] == [f"line {index}" for index in range(count)]


def test_a_pod_that_cannot_be_read_hides_nothing_and_is_not_remembered() -> None:
    trouble = LogEntry("", "store-1", "(its log cannot be read: no such pod)")
    page = page_of([*entries(1), trouble], {}, 10)
    assert page.entries == (trouble, *entries(1))
    assert read_token(page.token) == {"store-0": "2026-05-09T07:00:00Z"}


def test_a_token_is_read_as_it_was_written() -> None:
    seen = {"store-0": "2026-05-09T07:00:00.5Z", "store-1": "2026-05-09T07:00:01Z"}
    assert read_token(write_token(seen)) == seen
    assert read_token("") == {}


@pytest.mark.parametrize("token", ["x", "store-0", "store-0=yesterday", "../a=2026-05-09T07:00:00Z", ","])
def test_a_token_of_somebody_else_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="not the token"):
        read_token(token)
