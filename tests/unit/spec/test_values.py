"""Quantities and durations."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.spec import format_duration, parse_duration, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("500m", Decimal("0.5")),
        ("1.5", Decimal("1.5")),
        (".5", Decimal("0.5")),
        ("2Gi", 2 * 2**30),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("12e-1", Decimal("1.2")),
        ("100k", 100_000),
    ],
)
def test_quantity(text: str, value: object):
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1gi", "-1", "1K", "1e", "0x1", "1Gib", "١", "1e999", "9999E", "1\n"]
)
def test_not_a_quantity(text: str):
    with pytest.raises(ValueError, match="a quantity such as"):
        parse_quantity(text)


@given(st.integers(1, 365 * 86400))
def test_duration_round_trip(seconds: int):
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "0s", "15", "m", "1m1h", "-5s", "1.5h", "366d", "5 m", "1h\n1m"])
def test_not_a_duration(text: str):
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(text)
