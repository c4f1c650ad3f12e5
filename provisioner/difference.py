"""The difference of two documents, field by field, as a person would tell it.

Items of a list that have a name are told apart by it, not by their position:
a variable that was put in front of the others is one change, not one for each
that moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# By what Kubernetes itself merges the lists that occur in our objects.
_KEYS = ("name", "mountPath", "topologyKey")


@dataclass(frozen=True)
class FieldChange:
    """One field that differs.

    Attributes:
        steps: The way to it: keys of mappings, and keys of list items in brackets.
        old: The value before; None when there was none.
        new: The value after; None when there is none.
    """

    steps: tuple[str, ...]
    old: Any
    new: Any

    @property
    def path(self) -> str:
        """Where, for example `spec.template.spec.containers[data-service].image`."""
        return "".join(step if step.startswith("[") else f".{step}" for step in self.steps).removeprefix(".")


def differences(old: Any, new: Any) -> tuple[FieldChange, ...]:
    """All fields that differ, in the order of the new document.

    Args:
        old: A document of mappings, lists and plain values.
        new: Another one.

    Example:
        >>> [change.path for change in differences({"spec": {"replicas": 3}}, {"spec": {"replicas": 5}})]
        ['spec.replicas']
    """
    return tuple(_differences(old, new, ()))


def _differences(old: Any, new: Any, steps: tuple[str, ...]) -> Iterator[FieldChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in (*new, *(key for key in old if key not in new)):
            yield from _differences(old.get(key), new.get(key), (*steps, str(key)))
        return
    if _is_list(old) and _is_list(new):
        before, after = _keyed(old, new)
        for key in (*after, *(key for key in before if key not in after)):
            yield from _differences(before.get(key), after.get(key), (*steps, f"[{key}]"))
        return
    if not _equal(old, new):
        yield FieldChange(steps, old, new)


def _equal(old: Any, new: Any) -> bool:
    # In Python True is 1; in a document it is not. 1 and 1.0 are the same number.
    return old == new and isinstance(old, bool) == isinstance(new, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _keyed(old: Sequence[Any], new: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both lists by their items' names, or by position when the items have none."""
    for key in _KEYS:
        before, after = _names(old, key), _names(new, key)
        if before is not None and after is not None:
            return dict(zip(before, old, strict=True)), dict(zip(after, new, strict=True))
    return (
        {str(index): item for index, item in enumerate(old)},
        {str(index): item for index, item in enumerate(new)},
    )


def _names(items: Sequence[Any], key: str) -> list[str] | None:
    names = [_name(item, key) for item in items]
    if None in names or len(set(names)) != len(names):
        return None
    return [str(name) for name in names]


def _name(item: Any, key: str) -> str | None:
    if not isinstance(item, Mapping):
        return None
    found = item.get(key)
    if found is None and key == "name":
        metadata = item.get("metadata")
        found = metadata.get("name") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) else None
