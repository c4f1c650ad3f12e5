"""What the watches say is wrong, when several of them meet the same."""

from __future__ import annotations

from pathlib import Path

from waiting import wait_for

from provisioner.cluster import ClusterCache, ClusterClient
from provisioner.settings import Settings


def test_what_every_watch_meets_is_told_once_and_not_as_a_detail(tmp_path: Path) -> None:
    cache = ClusterCache(ClusterClient(Settings(kubeconfig=tmp_path / "missing")))
    cache.start()
    try:
        watches = cache._reflectors
        assert {watch.target.optional for watch in watches} == {True, False}
        wait_for(lambda: all(watch.health.problem for watch in watches), "every watch has met it")
        (told,) = cache.problems()
    finally:
        cache.stop()
    assert told.startswith(f"kubeconfig {tmp_path / 'missing'} does not exist; ")
    assert "only details" not in told
