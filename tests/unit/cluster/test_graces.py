"""For how long each cause may last is a setting."""

from __future__ import annotations

import pytest

from provisioner.cluster.findings.rules import GRACES, RULES, graces
from provisioner.errors import UsageError


def test_nothing_set_is_the_table():
    assert graces("") == GRACES


def test_one_is_longer_one_is_at_once_and_one_is_never_final():
    found = graces("Unschedulable=20m, ImageNotFound=0s,Evicted=never, ProbeFailing=1h")
    assert (found["Unschedulable"], found["ImageNotFound"], found["ProbeFailing"]) == (1200, 0, 3600)
    assert "Evicted" not in found
    same = set(GRACES) - {"Unschedulable", "ImageNotFound", "Evicted"}
    assert all(found[reason] == GRACES[reason] for reason in same)


def test_every_mistake_is_named_with_what_would_do():
    with pytest.raises(UsageError) as caught:
        graces("Unschedulabel=2m,Evicted=soon,NodeLost")
    for words in ("did you mean Unschedulable", "'Evicted=soon'", "'NodeLost'", "never"):
        assert words in caught.value.message
    assert "PROVISIONER_GRACES" in caught.value.hint
    assert all(reason in caught.value.hint for reason in RULES)
