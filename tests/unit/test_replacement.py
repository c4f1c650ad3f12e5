"""What needs a new StatefulSet, and whose data goes."""

import pytest

from provisioner.identity import for_name
from provisioner.replacement import lost_volumes, replacements
from provisioner.spec import DataServiceSpec, parse_spec

IDENTITY = for_name("p", "d", namespace="team", name="graph")
CLAIM = {"name": "data", "mountPath": "/data", "claim": {"size": "1Gi"}}


def spec(**fields: object) -> DataServiceSpec:
    return parse_spec({"image": "a:1", "ports": [{"name": "grpc", "port": 9000}], "replicas": 3, **fields})


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ({}, {"podManagementPolicy": "OrderedReady"}, ["podManagementPolicy"]),
        ({}, {"volumes": [CLAIM]}, ["volumes[data]"]),
        ({"volumes": [CLAIM]}, {}, ["volumes[data]"]),
        ({"volumes": [CLAIM]}, {"volumes": [{**CLAIM, "claim": {"size": "2Gi"}}]}, ["volumes[data].claim.size"]),
        (
            {"volumes": [CLAIM]},
            {"volumes": [{**CLAIM, "claim": {"size": "1Gi", "storageClass": "fast", "accessMode": "ReadWriteMany"}}]},
            ["volumes[data].claim.storageClass", "volumes[data].claim.accessMode"],
        ),
        ({"volumes": [CLAIM]}, {"volumes": [{**CLAIM, "mountPath": "/elsewhere", "readOnly": True}]}, []),
        ({"volumes": [CLAIM]}, {"volumes": [CLAIM], "volumeRetention": {"whenDeleted": "Retain"}}, []),
        ({}, {"volumes": [{"name": "tmp", "mountPath": "/scratch", "emptyDir": {}}]}, []),
        ({}, {"image": "a:2", "replicas": 0, "ports": [{"name": "x", "port": 1}], "labels": {"a": "b"}}, []),
    ],
)
def test_replacements(old: dict[str, object], new: dict[str, object], fields: list[str]):
    assert [found.field for found in replacements(spec(**old), spec(**new))] == fields


def lost(old: DataServiceSpec, new: DataServiceSpec) -> list[str]:
    return [volume.claim for volume in lost_volumes(IDENTITY, old, new)]


ALL = ["data-graph-0", "data-graph-1", "data-graph-2"]


def test_a_replacement_loses_the_claims_unless_they_are_retained():
    bigger = [{**CLAIM, "claim": {"size": "2Gi"}}]
    assert lost(spec(volumes=[CLAIM]), spec(volumes=bigger)) == ALL
    retained = {"whenDeleted": "Retain"}
    assert lost(spec(volumes=[CLAIM], volumeRetention=retained), spec(volumes=bigger)) == []
    # What is there decides, not what comes after it.
    assert lost(spec(volumes=[CLAIM]), spec(volumes=bigger, volumeRetention=retained)) == ALL


def test_scaling_down_loses_the_claims_of_the_replicas_that_go():
    assert lost(spec(volumes=[CLAIM]), spec(volumes=[CLAIM], replicas=1)) == ALL[1:]
    assert lost(spec(volumes=[CLAIM]), spec(volumes=[CLAIM], replicas=0)) == ALL
    assert lost(spec(volumes=[CLAIM]), spec(volumes=[CLAIM], replicas=5)) == []
    kept = spec(volumes=[CLAIM], replicas=1, volumeRetention={"whenScaled": "Retain"})
    assert lost(spec(volumes=[CLAIM]), kept) == []
    autoscaled = spec(volumes=[CLAIM], replicas=1, drift={"ignore": ["replicas"]})
    assert lost(spec(volumes=[CLAIM]), autoscaled) == []


def test_the_size_and_the_rule_are_said():
    (first, *_) = lost_volumes(IDENTITY, spec(volumes=[CLAIM]), spec(volumes=[CLAIM], replicas=2))
    assert str(first) == "data-graph-2 (1Gi): scaled away (3 -> 2), whenScaled is Delete"
