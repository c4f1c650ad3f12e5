"""Differences between documents, field by field."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.difference import FieldChange, differences


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": "1"}, {"a": 1}, ["a"]),
        ({"a": None}, {}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 2}}, ["a.b", "a.c"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a[1]"]),
        ({"a": {"b": 1}}, {"a": [1]}, ["a"]),
        (
            {"env": [{"name": "B", "value": "1"}]},
            {"env": [{"name": "A", "value": "0"}, {"name": "B", "value": "2"}]},
            ["env[A]", "env[B].value"],
        ),
        (
            {"claims": [{"metadata": {"name": "data"}, "spec": {"size": "1Gi"}}]},
            {"claims": [{"metadata": {"name": "data"}, "spec": {"size": "2Gi"}}]},
            ["claims[data].spec.size"],
        ),
        ({"m": [{"mountPath": "/a", "n": 1}]}, {"m": [{"mountPath": "/a", "n": 2}]}, ["m[/a].n"]),
        # Not all of the items have a name, or two have the same: by position.
        ({"a": [{"name": "x"}, {}]}, {"a": [{"name": "y"}, {}]}, ["a[0].name"]),
        ({"a": [{"name": "x", "n": 1}, {"name": "x", "n": 2}]}, {"a": [{"name": "x", "n": 3}]}, ["a[0].n", "a[1]"]),
    ],
)
def test_paths(old: object, new: object, paths: list[str]):
    assert [change.path for change in differences(old, new)] == paths


def test_values():
    assert differences({"a": {"b": 1}}, {"a": {"c": "x"}}) == (
        FieldChange(("a", "c"), None, "x"),
        FieldChange(("a", "b"), 1, None),
    )


values = st.recursive(
    st.integers(0, 3) | st.booleans() | st.sampled_from(["", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.lists(st.fixed_dictionaries({"name": st.sampled_from("xyz"), "value": inner}), max_size=3)
    ),
    max_leaves=10,
)


@given(values)
def test_a_document_does_not_differ_from_itself(document: object):
    assert differences(document, copy.deepcopy(document)) == ()


@given(values, values)
def test_both_directions_tell_of_the_same_fields(old: object, new: object):
    forth = {(change.path, repr(change.old), repr(change.new)) for change in differences(old, new)}
    back = {(change.path, repr(change.new), repr(change.old)) for change in differences(new, old)}
    assert forth == back
