"""The specifications that a service had, and which one a rollback means."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from provisioner.control.revisions import choose, revisions
from provisioner.engine import Checkpoint
from provisioner.engine.checkpoint import parse
from provisioner.errors import PermanentError
from provisioner.identity import for_name
from provisioner.spec import DataServiceSpec, parse_spec

IDENTITY = asdict(for_name("p", "d", namespace="team", name="graph"))
URN = "urn:pulumi:s::data-service::"


def spec(image: str) -> DataServiceSpec:
    return parse_spec({"image": image, "ports": [{"name": "grpc", "port": 9000}]})


def checkpoint(document: Any, *, applied: bool = True) -> Checkpoint:
    digest = parse_spec(document).digest() if applied else "another"
    resources = [
        {"urn": f"{URN}pulumi:pulumi:Stack::s", "type": "pulumi:pulumi:Stack", "outputs": {"specHash": digest}},
        {
            "urn": f"{URN}data-service:index:DataService::graph",
            "type": "data-service:index:DataService",
            "inputs": {"identity": IDENTITY, "spec": document},
        },
    ]
    return parse("s", json.dumps({"version": 3, "checkpoint": {"latest": {"resources": resources}}}).encode())


def known(*images: str) -> list[Any]:
    return revisions(checkpoint(spec(image).document()) for image in images)


def test_each_specification_once_the_newest_first():
    assert [revision.spec.image for revision in known("c", "b", "c", "a", "b")] == ["c", "b", "a"]


def test_what_was_not_applied_or_cannot_be_read_is_nothing_to_go_back_to():
    history = [
        checkpoint(spec("failed").document(), applied=False),
        checkpoint({"imgae": "from a newer version"}, applied=False),
        checkpoint(spec("good").document()),
    ]
    assert [revision.spec.image for revision in revisions(history)] == ["good"]


def test_the_one_before_the_current():
    assert choose(known("c", "b", "a"), spec("c"), None, "graph").spec.image == "b"
    # After an update that failed, the newest that was applied.
    assert choose(known("b", "a"), spec("c"), None, "graph").spec.image == "b"


def test_a_named_one():
    digest = spec("a").digest()
    assert choose(known("c", "b", "a"), spec("c"), digest[:6], "graph").spec.image == "a"


@pytest.mark.parametrize(
    ("images", "wanted", "said"),
    [
        (["c"], None, "no earlier revision"),
        ([], None, "no earlier revision"),
        (["c", "b"], "zzz", "no revision zzz"),
        (["c", "b", "a"], "", "several revisions"),
    ],
)
def test_no_such_revision(images: list[str], wanted: str | None, said: str):
    with pytest.raises(PermanentError, match=said) as caught:
        choose(known(*images), spec("c"), wanted, "graph")
    assert "provisioner history graph" in caught.value.hint
