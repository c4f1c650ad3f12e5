"""What a recorder's case is, and how the objects show that its fault has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from provisioner.cluster.api import Resource
from provisioner.spec import DataServiceSpec

if TYPE_CHECKING:
    from record import Recorder

Json = Mapping[str, Any]
Objects = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One fault.

    Attributes:
        spec: Fields of the specification, beside image, port and replicas.
        shows: Whether the objects show the fault.
        pod: Changes to the pod template's spec that the specification has no field for.
        manifest: Changes to the whole StatefulSet.
        before: Objects that are made first, as (resource, manifest).
        namespace: Labels of the namespace.
        then: What is done once `first` holds, before `shows` is awaited; gives
            the specification if that is another by then.
        first: When `then` is due.
    """

    shows: Callable[[Objects], bool]
    spec: dict[str, Any] = field(default_factory=dict)
    pod: Callable[[dict[str, Any]], None] = lambda _: None
    manifest: Callable[[dict[str, Any]], None] = lambda _: None
    before: tuple[tuple[Resource, Json], ...] = ()
    namespace: Json = field(default_factory=dict)
    then: Callable[[Recorder, Case], DataServiceSpec | None] | None = None
    first: Callable[[Objects], bool] = lambda _: True


def statuses(objects: Objects) -> Iterator[Json]:
    """The states of all containers."""
    for pod in objects["pods"]:
        for key in ("initContainerStatuses", "containerStatuses"):
            yield from pod["status"].get(key, [])


def waits(*reasons: str) -> Callable[[Objects], bool]:
    """A container waits for one of some reasons."""
    return lambda objects: any(
        status["state"].get("waiting", {}).get("reason") in reasons for status in statuses(objects)
    )


def said(reason: str, part: str = "", about: str = "") -> Callable[[Objects], bool]:
    """There is an event with a reason and a part of its message."""
    return lambda objects: any(
        event["reason"] == reason and part in event["message"] and about in event["involvedObject"]["kind"]
        for event in objects["events"]
    )


def condition(kind: str, part: str) -> Callable[[Objects], bool]:
    """A pod has a condition that is not True, with a part of its message."""
    return lambda objects: any(
        item["type"] == kind and item["status"] != "True" and part in item.get("message", "")
        for pod in objects["pods"]
        for item in pod["status"].get("conditions", [])
    )


def ready(count: int) -> Callable[[Objects], bool]:
    """The StatefulSet counts so many ready replicas and none else."""

    def shows(objects: Objects) -> bool:
        status = (objects["statefulset"] or {}).get("status", {})
        counted = status.get("readyReplicas", 0), status.get("replicas", -1), len(objects["pods"])
        return counted == (count, count, count) and "observedGeneration" in status

    return shows


def running(objects: Objects) -> bool:
    """Every container runs."""
    return all("running" in status["state"] for status in statuses(objects))


def both(*conditions: Callable[[Objects], bool]) -> Callable[[Objects], bool]:
    """All of some conditions hold."""
    return lambda objects: all(shows(objects) for shows in conditions)


def crashed(reason: str | None = None, code: int | None = None) -> Callable[[Objects], bool]:
    """A container waits after a crash of a kind."""

    def shows(objects: Objects) -> bool:
        return any(
            status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
            and reason in (None, status["lastState"].get("terminated", {}).get("reason"))
            and code in (None, status["lastState"].get("terminated", {}).get("exitCode"))
            for status in statuses(objects)
        )

    return both(shows, said("BackOff"))


def phase(name: str, reason: str) -> Callable[[Objects], bool]:
    """A pod is in a phase for a reason."""
    return lambda objects: any(
        pod["status"].get("phase") == name and pod["status"].get("reason") == reason for pod in objects["pods"]
    )
