"""Names: valid and different for any input."""

import re

from hypothesis import given
from hypothesis import strategies as st

from provisioner.identity import TaskExecutionId, dns_name, for_name, for_task, label_value, short_hash

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
texts = st.text(max_size=80)
tasks = st.builds(TaskExecutionId, texts, texts, texts, texts, texts, texts, st.integers(0, 99))


@given(texts, st.lists(texts, max_size=3), st.integers(16, 63))
def test_names_are_valid(readable: str, unique: list[str], length: int):
    name = dns_name(readable, *unique, length=length)
    assert LABEL.fullmatch(name)
    assert len(name) <= length
    assert "--" not in name


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_hash_tells_lists_apart(one: list[str], two: list[str]):
    assert (short_hash(*one) == short_hash(*two)) == (one == two)


@given(tasks, tasks)
def test_different_tasks_have_different_services(one: TaskExecutionId, two: TaskExecutionId):
    first = for_task(one, namespace="n")
    second = for_task(two, namespace="n")
    assert (first.service == second.service) == (one == two)
    assert (first.stack == second.stack) == (one == two)


@given(tasks)
def test_a_statefulset_can_add_its_suffix(task: TaskExecutionId):
    identity = for_task(task, namespace="n", name="graph")
    assert len(identity.service) + len("-") + 10 <= 63
    assert "_" not in identity.stack


@given(tasks, texts)
def test_labels_are_valid(task: TaskExecutionId, namespace: str):
    for value in for_task(task, namespace=namespace).labels().values():
        assert VALUE.fullmatch(value)
        assert len(value) <= 63


@given(texts)
def test_label_value_keeps_what_is_valid(text: str):
    value = label_value(text)
    assert VALUE.fullmatch(value)
    assert len(value) <= 63
    if len(text) <= 63 and VALUE.fullmatch(text):
        assert value == text


def test_named_services_are_scoped_by_project_and_domain():
    first = for_name("p", "d", namespace="n", name="graph")
    second = for_name("q", "d", namespace="n", name="graph")
    assert first.service == second.service == "graph"
    assert first.stack != second.stack


def test_dns_names():
    identity = for_name("p", "d", namespace="team", name="graph")
    assert identity.replica_host(2) == "graph-2.graph.team.svc.cluster.local"
