"""The index: whatever order changes come in, a stack's view is what a listing of everything would give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from provisioner.cluster.objects import Claim, Event, Namespace, Pod, Service, StatefulSet
from provisioner.cluster.store import MAX_EVENTS_PER_OBJECT, EventStore, NamespaceStore, Object, ObjectStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

objects = st.builds(
    lambda kind, namespace, name, stack, uid: kind(namespace, name, uid=uid, stack=stack),
    st.sampled_from([StatefulSet, Pod, Service, Claim]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x-0", "y-1"]),
    st.sampled_from(["s1", "s2"]),
    st.sampled_from(["1", "2"]),
)
steps = st.lists(st.tuples(st.sampled_from(["put", "drop", "replace"]), objects, st.lists(objects, max_size=3)))


@given(steps)
def test_the_index_agrees_with_a_plain_listing(changes: list[tuple[str, Object, list[Object]]]) -> None:
    store, model = ObjectStore(), {}
    for verb, item, listed in changes:
        before = dict(model)
        key = (type(item), item.namespace, item.name)
        if verb == "put":
            model[key] = item
            told = store.put(item)
        elif verb == "drop":
            model.pop(key, None)
            told = store.drop(type(item), (item.namespace, item.name))
        else:
            found = [other for other in listed if type(other) is type(item) and other.namespace == item.namespace]
            model = {k: v for k, v in model.items() if k[:2] != key[:2]}
            model.update({(type(other), other.namespace, other.name): other for other in found})
            told = store.replace(type(item), found, item.namespace)
        touched = {k for k in before.keys() | model.keys() if before.get(k) != model.get(k)}
        assert told >= {side[k].stack for k in touched for side in (before, model) if k in side}
    for stack in ("s1", "s2"):
        assert set(store.of(stack)) == {item for item in model.values() if item.stack == stack}
    for kind in (StatefulSet, Pod, Service, Claim):
        assert store.count(kind) == sum(1 for item in model.values() if type(item) is kind)


def test_an_unchanged_object_is_no_news() -> None:
    store = ObjectStore()
    assert store.put(Pod("a", "x-0", stack="s")) == {"s"}
    assert store.put(Pod("a", "x-0", stack="s")) == set()


def test_both_stacks_learn_of_a_label_that_changed() -> None:
    store = ObjectStore()
    store.put(Pod("a", "x-0", stack="old"))
    assert store.put(Pod("a", "x-0", stack="new")) == {"old", "new"}
    assert list(store.of("old")) == []


def said(number: int, kind: str = "Pod", about: str = "x-0") -> Event:
    return Event("a", f"event-{number}", kind, about, reason="Failed", last=NOON + timedelta(seconds=number))


def test_only_the_newest_events_of_an_object_are_kept() -> None:
    store = EventStore()
    for number in range(MAX_EVENTS_PER_OBJECT + 5):
        store.put(said(number))
    kept = sorted(int(event.name.partition("-")[2]) for event in store.about("Pod", "a", "x-0"))
    assert kept == list(range(5, MAX_EVENTS_PER_OBJECT + 5))
    assert len(store) == MAX_EVENTS_PER_OBJECT


def test_events_about_what_no_statefulset_owns_are_not_kept() -> None:
    store = EventStore()
    assert not store.put(said(1, "Node", "node-1"))
    assert not store.put(said(2, "Pod", "web-7c9d4-xk2lp"))
    assert store.put(said(3, "StatefulSet", "web"))
    assert len(store) == 1


def test_beyond_the_limit_strangers_go_first() -> None:
    store, known = EventStore(limit=10), ObjectStore()
    known.put(Pod("a", "ours-0", stack="s"))
    store.put(said(0, about="ours-0"))
    for number in range(1, 12):
        store.put(said(number, about=f"theirs-{number}"))
    store.trim(known)
    assert len(store) == 5
    assert [event.name for event in store.about("Pod", "a", "ours-0")] == ["event-0"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from(["x-0", "x-1"]))))
def test_events_leave_nothing_behind(changes: list[tuple[bool, int, str]]) -> None:
    store = EventStore()
    for put, number, about in changes:
        event = said(number, about=about)
        if put:
            store.put(event)
        else:
            store.drop((event.namespace, event.name))
    store.replace([], None)
    assert len(store) == 0
    assert list(store.about("Pod", "a", "x-0")) == []


def test_a_namespace_is_remembered_while_it_goes() -> None:
    store = NamespaceStore()
    store.replace([Namespace("a"), Namespace("b", deleted=NOON)])
    assert (store.deleted("a"), store.deleted("b")) == (None, NOON)
    store.drop("b")
    assert store.deleted("b") is None
    store.put(Namespace("a", deleted=NOON))
    store.put(Namespace("a"))
    assert store.deleted("a") is None
