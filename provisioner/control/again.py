"""Whether an applied service must be applied once more, and why: a pure function."""

from __future__ import annotations

from provisioner.cluster import Snapshot, stuck_pods
from provisioner.cluster.objects import Pod
from provisioner.control.queue import Intent, Kind, View

WATCH_LAG_SECONDS = 15.0
"""An applied object that the watch does not show after this time is gone, not late."""


def again(view: View, snapshot: Snapshot, now: float) -> Intent | None:
    """What is to be done for a service that was applied and does not stay as it was.

    Its objects may have been taken away by somebody, and pods of an earlier
    specification that cannot start hold up the rollout of the present one: a
    StatefulSet waits for them for ever.

    Args:
        view: What the queue knows of its stack.
        snapshot: What the cluster shows of it.
        now: The time in seconds since the epoch.

    Returns:
        None when nothing is.
    """
    if view.intent.kind is not Kind.APPLY or not view.settled or view.error is not None:
        return None
    request = view.intent.request
    if snapshot.statefulset is None:
        lost = snapshot.fresh and now - view.settled_at > WATCH_LAG_SECONDS
        return Intent(Kind.APPLY, request, repair=True) if lost else None
    stuck = _newly_stuck(view, snapshot)
    return Intent(Kind.APPLY, request, stuck=stuck) if stuck else None


def _newly_stuck(view: View, snapshot: Snapshot) -> tuple[Pod, ...]:
    found, wanted = snapshot.statefulset, view.intent.request.spec
    if found is None or found.digest != wanted.digest():
        return ()
    asked = {pod.uid for pod in view.intent.stuck}
    return tuple(pod for pod in stuck_pods(snapshot) if pod.uid not in asked)
