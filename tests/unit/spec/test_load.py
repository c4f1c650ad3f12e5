"""What a task template's `custom` field becomes."""

import pytest
from flytekit import Resources
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import SpecError
from provisioner.spec import parse_config, parse_spec
from provisioner.spec.load import plain


def through_protobuf(document: dict[str, object]) -> dict[str, object]:
    """As Flyte carries it: every number a float, every unset field a null."""
    struct = Struct()
    struct.update(document)
    return json_format.MessageToDict(struct)


OWN = {"name": "graph", "spec": {"image": "a:1", "ports": [{"name": "grpc", "port": 9000}], "replicas": 3}}


def test_numbers_survive_protobuf():
    config = parse_config(through_protobuf(OWN))
    assert config.spec == parse_spec(OWN["spec"])
    assert config.spec.canonical_json().count(".") == 0


def test_community_fields():
    config = parse_config(
        through_protobuf(
            {
                "Name": "gnn",
                "Image": "image:1",
                "Command": ["serve", "--all"],
                "Port": 1234,
                "Replicas": 2,
                "Requests": {"cpu": "1", "mem": "1Gi", "gpu": None, "ephemeral_storage": None},
                "Limits": {"cpu": "2", "mem": "4Gi", "gpu": "1", "ephemeral_storage": None},
                "ExistingReleaseName": None,
                "Cluster": "east",
            }
        )
    )
    assert config.name == "gnn"
    assert config.spec == parse_spec(
        {
            "image": "image:1",
            "command": ["serve", "--all"],
            "ports": [{"name": "main", "port": 1234}],
            "replicas": 2,
            "resources": {
                "requests": {"cpu": "1", "memory": "1Gi"},
                "limits": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
            },
        }
    )


def test_community_resources_have_the_names_of_flytekit():
    assert set(vars(Resources(cpu="1"))) >= {"cpu", "mem", "gpu", "ephemeral_storage"}


def test_community_replicas_unset_is_one():
    config = parse_config(through_protobuf({"Name": "gnn", "Image": "a", "Port": 1, "Replicas": None}))
    assert config.spec.replicas == 1


def test_existing_release_is_attached_not_created():
    config = parse_config(through_protobuf({"Name": "x", "Image": "a", "ExistingReleaseName": "shared"}))
    assert (config.existing_release_name, config.spec) == ("shared", None)


@pytest.mark.parametrize(
    ("custom", "path"),
    [
        ({}, "spec"),
        ({"spec": OWN["spec"], "existingReleaseName": "x"}, "spec"),
        ({"Name": "x", "image": "a"}, "image"),
        ({"Name": "x", "Image": "a", "Requests": {"tpu": 1}}, "Requests.tpu"),
        ({"name": "Under_score", "spec": OWN["spec"]}, "name"),
        ({"name": "a" * 53, "spec": OWN["spec"]}, "name"),
        ({"name": "1a", "spec": OWN["spec"]}, "name"),
    ],
)
def test_wrong_configs_name_the_field(custom: dict[str, object], path: str):
    with pytest.raises(SpecError) as caught:
        parse_config(custom)
    assert path in [problem.path for problem in caught.value.problems]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_plain_undoes_protobuf(document: dict[str, object]):
    assert plain(through_protobuf(document)) == without_nulls(document)


@given(json_values)
def test_any_custom_is_accepted_or_refused_with_problems(custom: object):
    outcome: object
    try:
        outcome = parse_config(custom)
    except SpecError as error:
        outcome = error.problems
    assert outcome
