"""When a service is ready: our own rule, stricter than the StatefulSet's own counters.

A status is never more optimistic than the cluster. So each of these must
hold, and whatever is unknown counts as not ready.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.cluster.objects import Snapshot, StatefulSet
from provisioner.spec import DataServiceSpec


@dataclass(frozen=True, slots=True)
class Readiness:
    """How far a service is.

    Attributes:
        ready: Pods that are ready at the revision of the present specification.
        wanted: Pods that the specification asks for.
        done: Whether the service is ready: as many as wanted, and nothing is under way.
        message: What is awaited, in one sentence.
    """

    ready: int
    wanted: int
    done: bool
    message: str


def counted(ready: int, wanted: int) -> str:
    """How many replicas are ready, in words.

    Args:
        ready: Number of those that are.
        wanted: Number of all that are wanted.

    Example:
        >>> counted(2, 3)
        '2 of 3 replicas are ready'
    """
    return f"{ready} of {wanted} replicas are ready"


def _rollout(found: StatefulSet, wanted: int, digest: str) -> str:
    """What the StatefulSet itself is still to do, or ""."""
    revisions_differ = found.current_revision != found.update_revision or not found.update_revision
    checks = (
        (found.deleted is not None, "the StatefulSet is being deleted"),
        (found.digest != digest, "the StatefulSet is not of this specification yet"),
        (found.replicas != wanted, f"the StatefulSet asks for {found.replicas} replicas, not {wanted}"),
        (found.observed_generation < found.generation, "the StatefulSet's controller has not seen it yet"),
        (found.current_replicas > wanted, f"{found.current_replicas - wanted} pods are still to be removed"),
        (found.current_replicas < wanted, f"{found.current_replicas} of {wanted} pods were made"),
        (found.updated_replicas < wanted, f"{found.updated_replicas} of {wanted} pods are of the new revision"),
        (found.ready_replicas > wanted, f"{found.ready_replicas - wanted} replicas too many are ready"),
        (wanted > 0 and revisions_differ, "the rollout is not completed yet"),
    )
    return next((message for failed, message in checks if failed), "")


def readiness(snapshot: Snapshot, spec: DataServiceSpec, digest: str) -> Readiness:
    """Whether each replica of a specification is ready.

    Args:
        snapshot: What there is.
        spec: What is wanted; 0 replicas is a paused service, which is ready
            when no pod is left.
        digest: Hash of the specification, as the StatefulSet's annotation holds it.
    """
    wanted = spec.replicas
    found = snapshot.statefulset
    if found is None:
        return Readiness(0, wanted, False, snapshot.stale_reason or "the StatefulSet does not exist yet")
    live = [pod for pod in snapshot.pods if pod.deleted is None]
    ready = sum(1 for pod in live if pod.ready and pod.revision == found.update_revision)
    # The StatefulSet's counters and the pods come by two watches: the lower one counts.
    ready = max(0, min(ready, found.ready_replicas, wanted)) if found.digest == digest else 0
    checks = (
        (not snapshot.fresh, snapshot.stale_reason or "what is known of the cluster is not fresh"),
        (snapshot.namespace_deleted is not None, f"namespace {found.namespace} is being deleted"),
        (snapshot.service is None or snapshot.service.deleted is not None, "the headless Service does not exist yet"),
        *((True, message) for message in (_rollout(found, wanted, digest),) if message),
        (ready < wanted, counted(ready, wanted)),
        (len(snapshot.pods) > wanted, f"{len(snapshot.pods) - wanted} pods are still to be removed"),
    )
    message = next((message for failed, message in checks if failed), "")
    if message:
        return Readiness(ready, wanted, False, message)
    said = {0: "paused: 0 replicas", 1: "its replica is ready"}
    return Readiness(ready, wanted, True, said.get(wanted, f"all {wanted} replicas are ready"))
