"""Kubernetes quantities: `500m`, `2Gi`, `1e3`.

The grammar is that of `k8s.io/apimachinery/pkg/api/resource`. It is checked
here rather than by the API server so that a wrong one is found together with
all other faults of a specification, before anything is created.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator

from provisioner.spec.base import shape

_SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?"
)
# The same without names of groups, which ECMAScript writes in another way, and without a sign.
_SHAPE = r"[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?"
# apimachinery caps a quantity at 2^63-1 of its unit.
_LARGEST = Decimal(2**63 - 1)

ACCEPTED = "a quantity such as 500m, 2 or 4Gi, not negative"


def parse_quantity(text: str) -> Decimal:
    """The value of a quantity.

    Args:
        text: For example `500m`, `2Gi` or `1e3`.

    Raises:
        ValueError: It is not a quantity, is negative or too large.

    Example:
        >>> parse_quantity("500m")
        Decimal('0.500')
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(ACCEPTED)
    suffix = match["suffix"] or ""
    scale = Decimal(f"1{suffix}") if len(suffix) > 1 and suffix[0] in "eE" and suffix[1] != "i" else _SCALES[suffix]
    value = Decimal(match["number"]) * scale
    if value < 0 or value > _LARGEST:
        raise ValueError(ACCEPTED)
    return value


def _coerce(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(ACCEPTED)
    if isinstance(value, float):
        # A protobuf Struct has no integers: 2.0 was written as 2, 0.5 as 0.5.
        value = int(value) if value.is_integer() else format(Decimal(str(value)), "f")
    text = str(value).strip()
    parse_quantity(text)
    return text


Quantity = Annotated[str, BeforeValidator(_coerce), shape(_SHAPE, "number")]
