import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.registry.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        # From the tests of Go's time.ParseDuration.
        ("0", 0),
        ("5s", 5),
        ("30s", 30),
        ("1478s", 1478),
        ("-5s", -5),
        ("+5s", 5),
        ("-0", 0),
        ("+0", 0),
        ("5.0s", 5),
        ("5.6s", 5.6),
        ("5.s", 5),
        (".5s", 0.5),
        ("1.0s", 1),
        ("1.00s", 1),
        ("1.004s", 1.004),
        ("100.00100s", 100.001),
        ("10ns", 1e-8),
        ("11us", 1.1e-5),
        ("12µs", 1.2e-5),
        ("12μs", 1.2e-5),
        ("13ms", 0.013),
        ("14s", 14),
        ("15m", 900),
        ("16h", 57600),
        ("3h30m", 12600),
        ("10.5s4m", 250.5),
        ("-2m3.4s", -123.4),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        ("39h9m14.425s", 140954.425),
        ("9223372036854775807ns", 9223372036.854775807),
        ("0.3333333333333333333h", 1200),
        ("100s", 100),
        ("1m30s", 90),
        ("500ms", 0.5),
    ],
)
def test_what_go_takes(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("3", "no unit"),
        ("3.5", "no unit"),
        ("1m30", "no unit"),
        ("-", "empty"),
        ("s", "not a duration"),
        (".", "not a duration"),
        ("-.", "not a duration"),
        (".s", "not a duration"),
        ("+.s", "not a duration"),
        ("1d", "unknown unit 'd'"),
        ("10 s", "unknown unit ' s'"),
        ("10S", "unknown unit 'S'"),
        ("1e3s", "unknown unit 'e'"),
        ("٣s", "not a duration"),
        ("--5s", "not a duration"),
        ("3000000h", "292 years"),
        ("9223372036854775808ns", "292 years"),
    ],
)
def test_what_go_refuses(text, said):
    with pytest.raises(ValueError, match=said):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_written_reads_back(milliseconds):
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ValueError):
        assert abs(parse_duration(text)) < 2**63


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "500ms"), (1, "1s"), (60, "1m"), (90.5, "1m30.5s"), (3600, "1h"), (3661, "1h1m1s")],
)
def test_it_is_written_as_people_write_it(seconds, text):
    assert format_duration(seconds) == text
