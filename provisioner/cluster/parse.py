"""From the API server's JSON to our small values.

Total over any JSON: a field that is absent, null or of another type counts as
absent. A broken object must cost a detail, never the watch that serves every
other service.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.cluster.objects import (
    Claim,
    Condition,
    Container,
    Event,
    Namespace,
    Pod,
    Service,
    StatefulSet,
    Termination,
)
from provisioner.identity import ANNOTATION_SPEC_HASH, LABEL_STACK

REVISION_LABEL = "controller-revision-hash"
# Kubernetes itself cuts an event's message at 1,024 bytes and a termination message at 4,096.
MESSAGE_LENGTH = 2048
# As in a healthy pod; anything else is worth keeping.
_HEALTHY = {"DisruptionTarget": "False", "PodResizePending": "False", "PodResizeInProgress": "False"}


def mapping(value: Any, key: str) -> Mapping[str, Any]:
    """The mapping that stands under a key; an empty one otherwise."""
    # `dict` and not `Mapping`: what json.loads gives, and four times as fast to tell.
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def items(value: Any, key: str) -> list[Mapping[str, Any]]:
    """The mappings of the list that stands under a key."""
    found = value.get(key) if isinstance(value, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: Mapping[str, Any], key: str) -> str:
    """The text that stands under a key, cut to a bounded length; "" otherwise."""
    found = value.get(key)
    return found[:MESSAGE_LENGTH] if isinstance(found, str) else ""


def word(value: Mapping[str, Any], key: str) -> str:
    """Like `text`, for what many objects share: kept in memory once."""
    return sys.intern(text(value, key))


def number(value: Mapping[str, Any], key: str, default: int = 0) -> int:
    """The whole number that stands under a key."""
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def time(value: Mapping[str, Any], key: str) -> datetime | None:
    """The RFC 3339 time that stands under a key, in UTC."""
    found = value.get(key)
    if not isinstance(found, str):
        return None
    try:
        parsed = datetime.fromisoformat(found)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def stack_of(metadata: Mapping[str, Any]) -> str:
    """Value of our stack label, or ""."""
    return word(mapping(metadata, "labels"), LABEL_STACK)


def _termination(state: Mapping[str, Any]) -> Termination | None:
    ended = mapping(state, "terminated")
    if not ended:
        return None
    return Termination(
        exit_code=number(ended, "exitCode"),
        signal=number(ended, "signal"),
        reason=word(ended, "reason"),
        message=text(ended, "message"),
        started_at=time(ended, "startedAt"),
        finished_at=time(ended, "finishedAt"),
    )


def _container(status: Mapping[str, Any], images: Mapping[str, str], *, init: bool) -> Container:
    state = mapping(status, "state")
    waiting = mapping(state, "waiting")
    name = word(status, "name")
    return Container(
        name=name,
        # The status names what the runtime resolved, sometimes a digest; people know what they asked for.
        image=images.get(name) or word(status, "image"),
        init=init,
        ready=status.get("ready") is True,
        restarts=number(status, "restartCount"),
        waiting_reason=word(waiting, "reason"),
        waiting_message=text(waiting, "message"),
        running_since=time(mapping(state, "running"), "startedAt"),
        terminated=_termination(state),
        last=_termination(mapping(status, "lastState")),
    )


def _condition(document: Mapping[str, Any]) -> Condition:
    return Condition(
        type=word(document, "type"),
        status=word(document, "status"),
        reason=word(document, "reason"),
        message=text(document, "message"),
        since=time(document, "lastTransitionTime"),
    )


def pod(document: Mapping[str, Any]) -> Pod:
    """A pod."""
    metadata, spec, status = mapping(document, "metadata"), mapping(document, "spec"), mapping(document, "status")
    images = {
        text(item, "name"): word(item, "image") for key in ("initContainers", "containers") for item in items(spec, key)
    }
    conditions = items(status, "conditions")
    containers = [_container(item, images, init=True) for item in items(status, "initContainerStatuses")]
    containers += [_container(item, images, init=False) for item in items(status, "containerStatuses")]
    return Pod(
        namespace=word(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        stack=stack_of(metadata),
        revision=word(mapping(metadata, "labels"), REVISION_LABEL),
        node=word(spec, "nodeName"),
        phase=word(status, "phase"),
        reason=word(status, "reason"),
        message=text(status, "message"),
        ready=any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions),
        created=time(metadata, "creationTimestamp"),
        deleted=time(metadata, "deletionTimestamp"),
        conditions=tuple(
            _condition(item) for item in conditions if text(item, "status") != _HEALTHY.get(text(item, "type"), "True")
        ),
        containers=tuple(containers),
    )


def statefulset(document: Mapping[str, Any]) -> StatefulSet:
    """A StatefulSet."""
    metadata, spec, status = mapping(document, "metadata"), mapping(document, "spec"), mapping(document, "status")
    return StatefulSet(
        namespace=word(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        stack=stack_of(metadata),
        digest=text(mapping(metadata, "annotations"), ANNOTATION_SPEC_HASH),
        generation=number(metadata, "generation"),
        observed_generation=number(status, "observedGeneration"),
        replicas=number(spec, "replicas", 1),
        current_replicas=number(status, "replicas"),
        ready_replicas=number(status, "readyReplicas"),
        updated_replicas=number(status, "updatedReplicas"),
        current_revision=word(status, "currentRevision"),
        update_revision=word(status, "updateRevision"),
        created=time(metadata, "creationTimestamp"),
        deleted=time(metadata, "deletionTimestamp"),
    )


def service(document: Mapping[str, Any]) -> Service:
    """A Service."""
    metadata = mapping(document, "metadata")
    return Service(
        namespace=word(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        stack=stack_of(metadata),
        created=time(metadata, "creationTimestamp"),
        deleted=time(metadata, "deletionTimestamp"),
    )


def claim(document: Mapping[str, Any]) -> Claim:
    """A PersistentVolumeClaim."""
    metadata, spec = mapping(document, "metadata"), mapping(document, "spec")
    return Claim(
        namespace=word(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        stack=stack_of(metadata),
        phase=word(mapping(document, "status"), "phase"),
        storage_class=word(spec, "storageClassName"),
        requested=word(mapping(mapping(spec, "resources"), "requests"), "storage"),
        created=time(metadata, "creationTimestamp"),
        deleted=time(metadata, "deletionTimestamp"),
    )


def event(document: Mapping[str, Any]) -> Event:
    """An event; the older form with a count and the newer one with a series."""
    metadata, about, series = (
        mapping(document, "metadata"),
        mapping(document, "involvedObject"),
        mapping(document, "series"),
    )
    first = time(document, "firstTimestamp") or time(document, "eventTime") or time(metadata, "creationTimestamp")
    return Event(
        namespace=word(metadata, "namespace"),
        name=text(metadata, "name"),
        kind=word(about, "kind"),
        object=text(about, "name"),
        uid=text(about, "uid"),
        reason=word(document, "reason"),
        message=text(document, "message"),
        count=max(number(document, "count", 1), number(series, "count", 1)),
        first=first,
        last=time(series, "lastObservedTime") or time(document, "lastTimestamp") or first,
    )


def namespace(document: Mapping[str, Any]) -> Namespace:
    """A namespace."""
    metadata = mapping(document, "metadata")
    return Namespace(name=word(metadata, "name"), deleted=time(metadata, "deletionTimestamp"))
