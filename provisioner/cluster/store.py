"""What is in the cache: an index by stack, so that one service's view costs only its own objects.

Not thread-safe, on purpose: the cache holds one lock around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeAlias, TypeVar

from provisioner.cluster.objects import Claim, Event, Namespace, Pod, Service, StatefulSet

# A cluster can be noisy; an hour of warnings about what is not ours must not fill our memory.
MAX_EVENTS = 20_000
MAX_EVENTS_PER_OBJECT = 16
_BEGINNING = datetime.min.replace(tzinfo=UTC)

Object: TypeAlias = StatefulSet | Pod | Service | Claim
Key: TypeAlias = tuple[str, str]
Found = TypeVar("Found", StatefulSet, Pod, Service, Claim)
_BY_KIND: dict[str, type[Object]] = {"StatefulSet": StatefulSet, "Pod": Pod, "PersistentVolumeClaim": Claim}


class ObjectStore:
    """Labelled objects of four kinds."""

    def __init__(self) -> None:
        self._stacks: dict[str, dict[tuple[type[Object], Key], Object]] = {}
        self._owners: dict[type[Object], dict[Key, str]] = {StatefulSet: {}, Service: {}, Pod: {}, Claim: {}}

    def put(self, item: Object) -> set[str]:
        """Add or replace an object.

        Returns:
            The stacks for which something changed.
        """
        kind, key = type(item), (item.namespace, item.name)
        changed = set()
        if self._owners[kind].get(key, item.stack) != item.stack:
            changed |= self.drop(kind, key)
        here = self._stacks.setdefault(item.stack, {})
        if here.get((kind, key)) != item:
            here[kind, key] = item
            self._owners[kind][key] = item.stack
            changed.add(item.stack)
        return changed

    def drop(self, kind: type[Object], key: Key) -> set[str]:
        """Forget an object.

        Returns:
            The stacks for which something changed.
        """
        stack = self._owners[kind].pop(key, None)
        if stack is None:
            return set()
        here = self._stacks[stack]
        del here[kind, key]
        if not here:
            del self._stacks[stack]
        return {stack}

    def replace(self, kind: type[Object], found: Iterable[Object], namespace: str | None) -> set[str]:
        """Make the store hold exactly what a listing found.

        Args:
            kind: What was listed.
            found: All that was found.
            namespace: Where; None for everywhere.

        Returns:
            The stacks for which something changed.
        """
        changed = set()
        seen = set()
        for item in found:
            seen.add((item.namespace, item.name))
            changed |= self.put(item)
        for key in [key for key in self._owners[kind] if key not in seen and namespace in (None, key[0])]:
            changed |= self.drop(kind, key)
        return changed

    def of(self, stack: str) -> Iterable[Object]:
        """The objects that carry the label of a stack."""
        return self._stacks.get(stack, {}).values()

    def all(self, kind: type[Found]) -> list[Found]:
        """The objects of one kind."""
        items = (self._stacks[stack][kind, key] for key, stack in self._owners[kind].items())
        return [item for item in items if isinstance(item, kind)]

    def owner(self, kind: str, key: Key) -> str | None:
        """The stack of an object that an event is about."""
        known = _BY_KIND.get(kind)
        return self._owners[known].get(key) if known else None

    def count(self, kind: type[Object]) -> int:
        """How many objects of a kind there are."""
        return len(self._owners[kind])


class EventStore:
    """Events by the object that they are about, bounded in number."""

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self._limit = limit
        self._about: dict[tuple[str, str, str], dict[str, Event]] = {}
        self._subject: dict[Key, tuple[str, str, str]] = {}

    def put(self, event: Event) -> bool:
        """Add or replace an event.

        Returns:
            Whether it is kept: only what can be about a service's object is.
        """
        # Objects of a StatefulSet end in an ordinal; this spares us the events of all Deployments and Jobs.
        if event.kind in ("Pod", "PersistentVolumeClaim"):
            if not event.object.rpartition("-")[2].isdigit():
                return False
        elif event.kind not in _BY_KIND:
            return False
        subject = (event.kind, event.namespace, event.object)
        if self._subject.get((event.namespace, event.name), subject) != subject:
            self.drop((event.namespace, event.name))
        events = self._about.pop(subject, {})
        events[event.name] = event
        self._about[subject] = events  # at the end: the most recently heard of
        self._subject[event.namespace, event.name] = subject
        if len(events) > MAX_EVENTS_PER_OBJECT:
            oldest = min(events.values(), key=lambda item: item.last or _BEGINNING)
            self.drop((oldest.namespace, oldest.name))
        return True

    def drop(self, key: Key) -> None:
        """Forget an event, by its own namespace and name."""
        subject = self._subject.pop(key, None)
        if subject is not None:
            events = self._about[subject]
            events.pop(key[1], None)
            if not events:
                del self._about[subject]

    def replace(self, found: Iterable[Event], namespace: str | None) -> None:
        """Make the store hold what a listing found.

        Args:
            found: All that was found.
            namespace: Where; None for everywhere.
        """
        for key in [key for key in self._subject if namespace is None or key[0] == namespace]:
            self.drop(key)
        for event in found:
            self.put(event)

    def trim(self, objects: ObjectStore) -> None:
        """Keep within the limit: what is about nothing of ours goes first, then the oldest."""
        if len(self._subject) <= self._limit:
            return
        strangers = [subject for subject in self._about if objects.owner(subject[0], subject[1:]) is None]
        ours = [subject for subject in self._about if objects.owner(subject[0], subject[1:]) is not None]
        for subject in (*strangers, *ours):
            if len(self._subject) <= self._limit // 2:
                return
            for name in list(self._about[subject]):
                self.drop((subject[1], name))

    def about(self, kind: str, namespace: str, name: str) -> Iterator[Event]:
        """The events about one object, of any uid."""
        yield from self._about.get((kind, namespace, name), {}).values()

    def __len__(self) -> int:
        return len(self._subject)


class NamespaceStore:
    """Namespaces that are being deleted; all others are not worth remembering."""

    def __init__(self) -> None:
        self._deleted: dict[str, datetime] = {}

    def put(self, namespace: Namespace) -> None:
        """Take note of a namespace."""
        if namespace.deleted is None:
            self._deleted.pop(namespace.name, None)
        else:
            self._deleted[namespace.name] = namespace.deleted

    def drop(self, name: str) -> None:
        """Forget a namespace."""
        self._deleted.pop(name, None)

    def replace(self, found: Iterable[Namespace]) -> None:
        """Make the store hold what a listing found."""
        self._deleted.clear()
        for namespace in found:
            self.put(namespace)

    def deleted(self, name: str) -> datetime | None:
        """When the deletion of a namespace was asked for, or None."""
        return self._deleted.get(name)
