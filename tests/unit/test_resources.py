"""The manifests, and that the component hands them to the engine as they are."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest
from pydantic import SecretStr

from provisioner.identity import (
    ANNOTATION_BACKEND,
    ANNOTATION_FIELD_MANAGER,
    ANNOTATION_USERS,
    LABEL_STACK,
    UNKNOWN_ORIGIN,
    USERS_LEASE,
    Origin,
    for_name,
)
from provisioner.resources.component import DataService
from provisioner.resources.manifests import manifests, outputs, secret_manifest, service_manifest, stateful_set_manifest
from provisioner.sealing import Sealer
from provisioner.spec import DataServiceSpec, parse_spec

# Pulumi's `resource.SigKey` and `resource.SecretSig`.
SECRET_SIGNATURE_KEY, SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
SEALER = Sealer(lambda: SecretStr("a passphrase"))
ORIGIN = Origin("c", "b", "m")
IDENTITY = for_name("p", "d", namespace="team", name="graph", owner="exec")


def spec(**change: object) -> DataServiceSpec:
    document = {"image": "a:1", "ports": [{"name": "main", "port": 9000}], "replicas": 2, **change}
    return SEALER.sealed(parse_spec(document), IDENTITY.stack)


FULL = spec(
    env={"TOKEN": {"secretKeyRef": {"name": "s", "key": "k"}}, "A": "$(B)", "KEY": {"secret": "hunter2"}},
    resources={"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
    livenessProbe={"httpGet": {"port": "main", "path": "/live"}},
    tolerations=[{"key": "gpu", "operator": "Exists"}],
    nodeSelector={"disk": "fast"},
    affinity={
        "replicasApart": "Required",
        "nodeRequired": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}],
    },
    topologySpread=[{"topologyKey": "zone"}],
    volumes=[
        {"name": "data", "mountPath": "/data", "claim": {"size": "1Gi"}},
        {"name": "tmp", "mountPath": "/tmp", "emptyDir": {}},  # noqa: S108
    ],
    disruptionBudget={"maxUnavailable": 1},
    maxUnavailable=2,
    serviceAccount="reader",
    ttl="1h",
)


class Recorder(pulumi.runtime.Mocks):
    """Keeps the inputs that the program registers, as the engine would get them."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.inputs[args.typ] = args.inputs
        return args.name, args.inputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        return {}


def contains(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(key in actual and contains(actual[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(contains, actual, wanted))
    return bool(actual == wanted)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in this thread: the engine's mocks need one, and a test before may have taken it away."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


@pytest.fixture
def registered(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    recorder = Recorder()
    pulumi.runtime.set_mocks(recorder, project="data-service", stack=IDENTITY.stack)

    @pulumi.runtime.test
    def run() -> None:
        DataService(IDENTITY, FULL, SEALER.opened(FULL, IDENTITY.stack), origin=ORIGIN, shared=True)

    run()
    return recorder.inputs


def test_manifests_reach_the_engine_as_the_head_start_makes_them(registered: dict[str, Any]):
    wanted = manifests(IDENTITY, FULL, SEALER.opened(FULL, IDENTITY.stack), ORIGIN, shared=True)
    made = {name.rpartition(":")[2]: inputs for name, inputs in registered.items() if name.startswith("kubernetes:")}
    assert list(wanted) == ["Service", "Secret", "StatefulSet", "PodDisruptionBudget"]
    assert set(made) == set(wanted)
    for kind in ("Service", "StatefulSet", "PodDisruptionBudget"):
        assert contains(made[kind], wanted[kind])
    assert made["Secret"]["metadata"] == wanted["Secret"]["metadata"]
    assert made["Secret"]["data"]["value"] == wanted["Secret"]["data"]
    assert made["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    data = registered["kubernetes:core/v1:Secret"]["data"]
    # Marked as Pulumi's secret: the engine encrypts it in the checkpoint and masks it in what it shows.
    assert data[SECRET_SIGNATURE_KEY] == SECRET_SIGNATURE
    assert {name: base64.b64decode(value) for name, value in data["value"].items()} == {"KEY": b"hunter2"}


def test_every_object_says_where_it_is_recorded_who_manages_it_and_that_it_is_shared():
    for manifest in manifests(IDENTITY, FULL, {"KEY": "k"}, ORIGIN, shared=True).values():
        annotations = manifest["metadata"]["annotations"]
        assert annotations[ANNOTATION_BACKEND] == "b"
        assert annotations[ANNOTATION_FIELD_MANAGER] == "m"
        assert annotations[ANNOTATION_USERS] == USERS_LEASE
    for manifest in manifests(IDENTITY, FULL, {"KEY": "k"}, UNKNOWN_ORIGIN, shared=False).values():
        annotations = manifest["metadata"]["annotations"]
        assert not {ANNOTATION_BACKEND, ANNOTATION_FIELD_MANAGER, ANNOTATION_USERS} & set(annotations)


class Refusing(Recorder):
    """Refuses the StatefulSet, as a cluster may."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.typ.endswith(":StatefulSet"):
            raise RuntimeError("refused")
        return super().new_resource(args)


def test_no_output_tells_of_a_specification_whose_objects_failed(loop: asyncio.AbstractEventLoop):
    # Each output holds more futures than anybody asks for; what they say is what is expected here.
    loop.set_exception_handler(lambda _loop, _context: None)
    pulumi.runtime.set_mocks(Refusing(), project="data-service", stack=IDENTITY.stack)
    made: list[DataService] = []

    @pulumi.runtime.test
    def run() -> None:
        made.append(DataService(IDENTITY, FULL, SEALER.opened(FULL, IDENTITY.stack)))

    with pytest.raises(Exception, match="refused"):
        run()
    with pytest.raises(Exception, match="refused"):
        loop.run_until_complete(made[0].outputs["specHash"].future())


def test_a_secret_is_in_no_manifest_and_in_no_input_of_the_component(registered: dict[str, Any]):
    made = [make(IDENTITY, FULL) for make in (service_manifest, stateful_set_manifest, secret_manifest, outputs)]
    shown = json.dumps([*made, registered["data-service:index:DataService"]])
    assert "hunter2" not in shown
    assert base64.b64encode(b"hunter2").decode() not in shown


def test_a_changed_secret_restarts_the_pods_and_an_equal_one_does_not():
    one, same, other = (
        stateful_set_manifest(IDENTITY, spec(env={"KEY": {"secret": value}}))["spec"]["template"] for value in "aab"
    )
    assert one == same != other


def test_no_secret_object_without_secrets():
    assert secret_manifest(IDENTITY, spec(env={"A": "plain"})) is None


def test_component_inputs_hold_all_that_is_needed_to_begin_again(registered: dict[str, Any]):
    inputs = registered["data-service:index:DataService"]
    assert parse_spec(inputs["spec"]) == FULL
    assert inputs["identity"]["owner"] == "exec"


def test_scaling_leaves_the_pods_as_they_are():
    few, many = (stateful_set_manifest(IDENTITY, spec(replicas=count))["spec"]["template"] for count in (2, 5))
    assert few == many


def test_headless_service_publishes_replicas_that_are_not_ready():
    manifest = service_manifest(IDENTITY, spec())["spec"]
    assert (manifest["clusterIP"], manifest["publishNotReadyAddresses"]) == ("None", True)


def test_every_object_and_pod_carries_the_stack():
    for manifest in (service_manifest(IDENTITY, spec()), stateful_set_manifest(IDENTITY, spec())):
        assert manifest["metadata"]["labels"][LABEL_STACK] == IDENTITY.stack
    template = stateful_set_manifest(IDENTITY, spec())["spec"]["template"]
    assert template["metadata"]["labels"][LABEL_STACK] == IDENTITY.stack


def test_our_labels_cannot_be_taken_over_by_a_specification():
    with pytest.raises(Exception, match="belongs to the provisioner"):
        spec(labels={LABEL_STACK: "other"})


def test_variables_are_literal():
    container = stateful_set_manifest(IDENTITY, FULL)["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "A", "value": "$$(B)"} in container["env"]


def test_manifests_are_plain_data():
    manifest = stateful_set_manifest(IDENTITY, FULL)
    assert json.loads(json.dumps(manifest)) == manifest


def test_outputs_list_every_replica():
    found = outputs(IDENTITY, spec(replicas=3))
    assert found["endpoints"][2] == "graph-2.graph.team.svc.cluster.local:9000"
    assert found["specHash"] == spec(replicas=3).digest()


def test_readiness_defaults_to_a_connection_to_the_first_port():
    container = stateful_set_manifest(IDENTITY, spec())["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["tcpSocket"] == {"port": "main"}
    udp = spec(ports=[{"name": "main", "port": 9000, "protocol": "UDP"}])
    container = stateful_set_manifest(IDENTITY, udp)["spec"]["template"]["spec"]["containers"][0]
    assert "readinessProbe" not in container
