"""One thing that is wrong, and the facts from which it was found."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from provisioner.cluster.objects import Claim, Container, Event, Pod, PodRef, Snapshot, StatefulSet
from provisioner.spec import DataServiceSpec

DETAIL_LENGTH = 2000
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        reason: CamelCase code, a key of `rules.RULES`.
        subject: The object, for example `pod default/store-0`.
        summary: One sentence that names the object and the value.
        detail: What the cluster itself said, or the last lines of a log.
        hint: The next step, where it depends on the case; else the rule's.
        since: Since when it has been so, as far as the cluster tells.
        certain: It will not pass, however short a time it has been so.
        passing: It is over for now, and may come again: not final yet.
        wants_logs: The log that would tell more.
    """

    reason: str
    subject: str
    summary: str
    detail: str = ""
    hint: str = ""
    since: datetime | None = None
    certain: bool = False
    passing: bool = False
    wants_logs: PodRef | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a finding may be drawn from.

    Attributes:
        snapshot: What there is.
        spec: What is wanted.
        now: The time, with a time zone.
        logs: Last lines of logs that were fetched, by pod name.
        digest: Hash of the specification, as the StatefulSet's annotation holds it.
    """

    snapshot: Snapshot
    spec: DataServiceSpec
    now: datetime
    logs: Mapping[str, str]
    digest: str

    def events(self, item: Pod | Claim | StatefulSet, *reasons: str) -> list[Event]:
        """The events about this very object with one of some reasons, the newest last."""
        kind = {Pod: "Pod", Claim: "PersistentVolumeClaim", StatefulSet: "StatefulSet"}[type(item)]
        return [
            event
            for event in self.snapshot.events
            if event.kind == kind
            and event.object == item.name
            and event.uid in ("", item.uid)
            and (not reasons or event.reason in reasons)
        ]

    def first_seen(self, pod: Pod, reasons: Collection[str]) -> datetime | None:
        """When the first of some events about a pod was seen; when it was made, if none is known."""
        times = [event.first for event in self.events(pod, *reasons) if event.first is not None]
        return min(times, default=pod.created)


def named(pod: Pod) -> str:
    """A pod, as a sentence names it."""
    return f"pod {pod.namespace}/{pod.name}"


def part(container: Container) -> str:
    """A container, as a sentence names it."""
    return f"{'init container' if container.init else 'container'} {container.name}"


def clean(text: str, length: int = DETAIL_LENGTH) -> str:
    """What somebody else wrote, fit for a terminal: no control characters, bounded; the end is kept.

    Args:
        text: Any text.
        length: Most characters kept.
    """
    plain = _CONTROL.sub("", text.replace("\r\n", "\n")).strip()
    return plain if len(plain) <= length else "..." + plain[-(length - 3) :]


def brief(text: str, length: int = 300) -> str:
    """The same for a sentence: in one line, and the beginning is kept.

    Args:
        text: Any text.
        length: Most characters kept.
    """
    plain = " ".join(_CONTROL.sub("", text).split())
    return plain if len(plain) <= length else plain[: length - 3] + "..."


def tail(text: str, separator: str = ": ", parts: int = 2) -> str:
    """The end of a chain of wrapped errors, which names the cause.

    Args:
        text: For example `a: b: connect: connection refused`.
        separator: What the chain is joined by.
        parts: How many of the last links to keep.
    """
    return brief(separator.join(text.split(separator)[-parts:]), 200)
