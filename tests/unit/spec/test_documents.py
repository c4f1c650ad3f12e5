"""Services in YAML: several documents, every problem with its path, nothing leaked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import SpecError
from provisioner.spec.documents import parse_documents

GOOD = """
apiVersion: data-service/v1
kind: DataService
metadata: {name: graph, namespace: team}
spec:
  image: localhost/store:1
  ports: [{name: grpc, port: 9000}]
  replicas: 3.0
"""


def problems(text: str) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parse_documents(text, source="service.yaml")
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_one_document():
    (service,) = parse_documents(GOOD, source="service.yaml")
    assert (service.metadata.name, service.metadata.namespace, service.spec.replicas) == ("graph", "team", 3)


def test_several_documents_and_empty_ones():
    assert len(parse_documents(f"---\n{GOOD}---\n---\n{GOOD}", source="service.yaml")) == 2


def test_problems_of_all_documents_carry_their_index():
    found = problems(GOOD.replace("image:", "imgae:") + "---\n" + GOOD.replace("graph", "Graph"))
    assert "did you mean image?" in found["[0].spec.imgae"]
    assert "[1].metadata.name" in found


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("", "document", "empty"),
        ("[1]", "document", "a mapping"),
        ("a: 1\na: 2", "line 2, column 1", "stands twice"),
        ("a: &x [*x]", "document", ""),
        ("a: *b", "line 1, column 4", "undefined alias"),
        ("a: [", "line 1, column 5", "YAML"),
        ("{" * 3000, "document", "YAML"),
        ("!!python/object:os.system {}", "line 1, column 1", "YAML"),
        ("1: 2", "line 1, column 1", "not a text"),
        ("x" * 1_000_001, "document", "at most"),
        (GOOD.replace("data-service/v1", "data-service/v2"), "apiVersion", "data-service/v1"),
    ],
)
def test_hostile_and_wrong_text(text: str, path: str, said: str):
    found = problems(text)
    assert said in next(
        (shown for where, shown in found.items() if where.startswith(path)), f"nothing at {path}: {found}"
    )


def test_values_of_variables_are_never_shown():
    text = GOOD + "  env: {TOKEN: [hunter2], OTHER: {secretKeyRef: hunter2}}\n"
    assert "hunter2" not in " ".join(problems(text).values())


@given(st.text(max_size=200))
def test_any_text_gives_services_or_problems(text: str):
    outcome: object
    try:
        outcome = parse_documents(text, source="service.yaml")
    except SpecError as error:
        outcome = error.problems
    assert outcome
