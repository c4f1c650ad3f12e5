"""What is refused at the door of an operation, and how the rest is carried out."""

from contextlib import nullcontext

import pytest

from provisioner.cluster import ForeignObject
from provisioner.cluster.live import KeptClaim
from provisioner.control.admission import Way, check_claims, check_cluster, check_names, way
from provisioner.control.recorded import Recorded
from provisioner.control.request import ServiceRequest
from provisioner.errors import RefusedError
from provisioner.identity import for_name
from provisioner.spec import parse_spec

IDENTITY = for_name("p", "d", namespace="team", name="graph")
DATA = {"name": "data", "mountPath": "/data", "claim": {"size": "1Gi"}}


def request(replace: bool = False, **fields: object) -> ServiceRequest:
    spec = parse_spec({"image": "a:1", "ports": [{"name": "grpc", "port": 9000}], "replicas": 2, **fields})
    return ServiceRequest(IDENTITY, spec, 0.0, replace)


def record(**fields: object) -> Recorded:
    return Recorded(IDENTITY, request(**fields).spec, True, None)


def test_what_is_not_there_yet_is_made():
    assert way(None, request(podManagementPolicy="OrderedReady")) is Way.UPDATE


def test_what_can_be_changed_in_place_is():
    assert way(record(volumes=[DATA]), request(volumes=[DATA], image="a:2", replicas=5)) is Way.UPDATE


def test_a_replacement_is_refused_with_its_reasons_and_its_price():
    with pytest.raises(RefusedError) as caught:
        way(record(volumes=[DATA]), request(volumes=[{**DATA, "claim": {"size": "2Gi"}}]))
    assert caught.value.reason == "ReplacementNeeded"
    assert "volumes[data].claim.size" in caught.value.message
    assert "data-graph-0, data-graph-1" in caught.value.message
    assert "--replace" in caught.value.hint


def test_a_replacement_that_keeps_its_volumes_says_so():
    with pytest.raises(RefusedError, match="its volumes would be kept"):
        way(record(), request(podManagementPolicy="OrderedReady"))


def test_a_replacement_that_is_allowed_recreates():
    assert way(record(), request(replace=True, podManagementPolicy="OrderedReady")) is Way.RECREATE
    assert way(record(), request(replace=True)) is Way.UPDATE


def test_the_owner_of_a_foreign_object_is_named():
    check_names([])
    with pytest.raises(RefusedError, match="Service team/graph exists and belongs to Helm"):
        check_names([ForeignObject("Service", "team", "graph", "Helm")])


OLD = KeptClaim("data-graph-0", "uid", "1Gi", going=False)


@pytest.mark.parametrize(
    ("claim", "wanted", "refused"),
    [
        (OLD, request(volumes=[DATA]), True),
        (OLD, request(volumes=[DATA], volumeRetention={"whenDeleted": "Retain"}), False),
        (OLD, request(replace=True, volumes=[DATA]), False),
        (OLD, request(), False),
        (KeptClaim("data-graph-0", "uid", "1Gi", going=True), request(volumes=[DATA]), False),
        (KeptClaim("data-graph-7", "uid", "1Gi", going=False), request(volumes=[DATA]), False),
    ],
)
def test_old_data_is_seen_only_by_who_asks_for_it(claim: KeptClaim, wanted: ServiceRequest, refused: bool):
    with pytest.raises(RefusedError, match="data-graph-0") if refused else nullcontext():
        check_claims([claim], wanted.spec, wanted)


def test_a_request_that_may_replace_survives_being_written():
    for given in (request(), request(replace=True)):
        assert ServiceRequest.from_document(given.document()) == given
    assert not request().same(request(replace=True))


@pytest.mark.parametrize(
    ("known", "cluster", "refused"), [("a", "b", True), ("a", "a", False), ("", "b", False), ("a", "", False)]
)
def test_one_cluster_is_not_taken_for_another(known: str, cluster: str, refused: bool):
    with pytest.raises(RefusedError, match="in another cluster") if refused else nullcontext():
        check_cluster("graph", known, cluster)
