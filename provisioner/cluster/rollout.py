"""Pods that hold an update up for ever.

A StatefulSet waits for a broken pod of its old revision before it replaces
it, also when the new revision is the repair (kubernetes#60164: "bad image,
then good"). Deleting such a pod is what its documentation asks a person to do.
"""

from __future__ import annotations

from provisioner.cluster.objects import Pod, Snapshot


def stuck_pods(snapshot: Snapshot) -> tuple[Pod, ...]:
    """Pods of an old revision that are not ready and that nobody deletes, while a newer revision waits.

    Args:
        snapshot: What there is.

    Returns:
        The pods that may be deleted: they serve nobody, and the StatefulSet
        makes them anew from the present revision.
    """
    found = snapshot.statefulset
    if not snapshot.fresh or found is None or found.deleted is not None:
        return ()
    if found.observed_generation < found.generation or found.current_revision == found.update_revision:
        return ()
    return tuple(
        pod
        for pod in snapshot.pods
        if pod.deleted is None and not pod.ready and pod.revision not in ("", found.update_revision)
    )
