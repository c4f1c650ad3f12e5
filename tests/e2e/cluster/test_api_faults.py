"""An API server that is away, slow, overloaded or forgetful: the cache says so, and recovers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY

from provisioner.cluster import ClusterCache, ClusterClient, Readiness, readiness
from provisioner.cluster.api import STATEFULSETS
from provisioner.errors import ProvisionerError, TransientError


def restarts(resource: str, cause: str) -> float:
    labels = {"resource": resource, "cause": cause}
    return REGISTRY.get_sample_value("provisioner_watch_restarts_total", labels) or 0.0


def lists(resource: str) -> float:
    return REGISTRY.get_sample_value("provisioner_watch_lists_total", {"resource": resource}) or 0.0


@pytest.fixture
def served(
    lab: Any, proxy: Any, watch: Callable[..., ClusterCache], spec: Callable[..., Any], eventually: Callable[..., Any]
) -> ClusterCache:
    """A cache behind the proxy that shows a service which is ready."""
    cache = watch(ClusterClient(proxy.settings()))
    lab.apply(lab.identity(), spec())
    eventually(lambda: judged(cache, lab, spec()).done, "the service ready")
    return cache


def judged(cache: ClusterCache, lab: Any, wanted: Any) -> Readiness:
    return readiness(cache.snapshot(lab.identity()), wanted, wanted.digest())


def test_an_api_server_that_dies_and_returns(
    lab: Any, proxy: Any, served: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    refused = restarts("statefulsets", "Unreachable")
    proxy.down()
    eventually(lambda: not served.snapshot(lab.identity()).fresh, "not fresh")
    answer = judged(served, lab, spec())
    assert not answer.done
    assert "no word about" in answer.message
    eventually(lambda: any("refused" in problem for problem in served.problems()), "the cause")
    # Meanwhile the service goes away: the cache may not believe in it afterwards.
    lab.delete(STATEFULSETS, "store")
    # By then each watch has been without contact for longer than may be: only a list makes it fresh.
    eventually(lambda: restarts("statefulsets", "Unreachable") > refused + 8, "no contact for long")
    proxy.up()
    eventually(lambda: served.snapshot(lab.identity()).fresh, "fresh again")
    assert served.snapshot(lab.identity()).statefulset is None
    eventually(lambda: served.problems() == [], "no problem left")


def test_an_api_server_that_hangs(
    lab: Any, proxy: Any, served: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    proxy.stalled.set()
    proxy.cut()
    eventually(lambda: not served.snapshot(lab.identity()).fresh, "not fresh")
    assert not judged(served, lab, spec()).done
    proxy.stalled.clear()
    proxy.released.set()
    eventually(lambda: judged(served, lab, spec()).done, "ready again")


def test_a_watch_cut_in_the_middle_goes_on_without_a_list(
    lab: Any,
    proxy: Any,
    watch_steadily: Callable[..., ClusterCache],
    spec: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    # Another cache would list again what was out of contact for a second.
    cache = watch_steadily(ClusterClient(proxy.settings()))
    lab.apply(lab.identity(), spec())
    eventually(lambda: judged(cache, lab, spec()).done, "the service ready")
    listed, cut = lists("pods"), restarts("pods", "Unreachable")
    proxy.cut()
    eventually(lambda: restarts("pods", "Unreachable") > cut, "the watch of pods cut")
    wanted = spec(replicas=3)
    lab.apply(lab.identity(), wanted)
    eventually(lambda: judged(cache, lab, wanted).done, "the change seen after the cut")
    assert lists("pods") == listed


def test_a_resource_version_that_expired_is_listed_anew(
    lab: Any, proxy: Any, served: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    """The real API server's own 410: the watch is asked from a version that is long compacted."""
    listed, expired = lists("pods"), restarts("pods", "expired")
    proxy.rewrite = lambda path: re.sub(r"resourceVersion=\d+", "resourceVersion=1", path)
    proxy.cut()
    eventually(lambda: restarts("pods", "expired") > expired, "410")
    proxy.rewrite = lambda path: path
    wanted = spec(replicas=3)
    lab.apply(lab.identity(), wanted)
    eventually(lambda: judged(served, lab, wanted).done, "the change seen after the list")
    assert lists("pods") > listed


@pytest.mark.parametrize(
    ("status", "headers", "cause"),
    [(429, {"Retry-After": "1"}, "Throttled"), (503, {}, "Unavailable"), (500, {}, "Unavailable")],
)
def test_a_storm_of_refusals_is_waited_out(
    status: int,
    headers: dict[str, str],
    cause: str,
    lab: Any,
    proxy: Any,
    served: ClusterCache,
    spec: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    before = restarts("pods", cause)
    proxy.answer = lambda _: (status, headers, b"overloaded")
    proxy.cut()
    eventually(lambda: restarts("pods", cause) > before + 2, "three refusals")
    eventually(lambda: not judged(served, lab, spec()).done, "not ready any more")
    proxy.answer = lambda _: None
    eventually(lambda: judged(served, lab, spec()).done, "ready again")


@pytest.mark.parametrize("body", [b"<html>login</html>", b'{"kind": "Pod', b"[]", b'{"type": "ADDED"}\n\xff\xfe\n'])
def test_answers_that_are_no_objects_do_no_harm(
    body: bytes, lab: Any, proxy: Any, served: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    before = sum(restarts("pods", cause) for cause in ("InvalidAnswer", "ended at once", "fault"))
    proxy.answer = lambda _: (200, {}, body)
    proxy.cut()
    eventually(
        lambda: sum(restarts("pods", cause) for cause in ("InvalidAnswer", "ended at once", "fault")) > before + 1,
        "the answer refused",
    )
    proxy.answer = lambda _: None
    wanted = spec(replicas=3)
    lab.apply(lab.identity(), wanted)
    eventually(lambda: judged(served, lab, wanted).done, "following again")


def test_an_error_within_the_stream_is_understood(
    lab: Any, proxy: Any, served: ClusterCache, spec: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    event = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    expired = restarts("pods", "expired")
    proxy.answer = lambda path: (200, {}, json.dumps(event).encode() + b"\n") if "watch=1" in path else None
    proxy.cut()
    eventually(lambda: restarts("pods", "expired") > expired, "410 in the stream")
    proxy.answer = lambda _: None
    eventually(lambda: judged(served, lab, spec()).done, "ready again")


def test_time_that_runs_backwards_is_noticed(
    lab: Any, proxy: Any, served: ClusterCache, eventually: Callable[..., Any]
) -> None:
    """Restored from a backup, or another cluster at the same address: its versions are lower than ours."""
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "1"}}}
    listed, expired = lists("pods"), restarts("pods", "expired")
    proxy.answer = lambda path: (200, {}, json.dumps(bookmark).encode() + b"\n") if "watch=1" in path else None
    proxy.cut()
    eventually(lambda: restarts("pods", "expired") > expired and lists("pods") > listed, "listed anew")
    proxy.answer = lambda _: None


def test_calls_are_bounded_and_say_what_happened(proxy: Any) -> None:
    client = ClusterClient(proxy.settings())
    assert client.cluster_id()
    proxy.answer = lambda _: (503, {}, b"")
    with pytest.raises(TransientError, match="get namespaces kube-system"):
        client.cluster_id()
    proxy.answer = lambda _: (302, {"Location": "http://127.0.0.1:1/"}, b"")
    with pytest.raises(ProvisionerError, match="HTTP 302"):
        client.cluster_id()
    proxy.answer = lambda _: (200, {}, b"<html>")
    with pytest.raises(TransientError, match="not a JSON object"):
        client.cluster_id()
    proxy.down()
    with pytest.raises(TransientError, match="refused") as caught:
        client.cluster_id()
    assert caught.value.reason == "Unreachable"


def test_the_cache_ends_at_once_even_when_the_api_server_hangs(
    proxy: Any,
    watch_steadily: Callable[..., ClusterCache],
    watching: Callable[[], set[threading.Thread]],
    eventually: Callable[..., Any],
) -> None:
    before = watching()
    # Nobody else ends these watches for an hour.
    cache = watch_steadily(ClusterClient(proxy.settings()))
    proxy.stalled.set()
    cache.stop()
    eventually(lambda: watching() <= before, "no watch is left")
