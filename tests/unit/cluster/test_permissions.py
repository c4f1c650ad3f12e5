"""What control needs is asked for once each."""

from __future__ import annotations

from provisioner.cluster import NEEDED


def test_no_permission_is_asked_for_twice() -> None:
    assert len(set(NEEDED)) == len(NEEDED)
