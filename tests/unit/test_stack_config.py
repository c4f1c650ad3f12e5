"""What the configuration of a stack means, for plain `pulumi`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from provisioner.errors import SpecError, UsageError
from provisioner.identity import for_name
from provisioner.settings import Settings
from provisioner.spec import parse_spec
from provisioner.stack_config import StackConfig, service

DEFAULTS = Settings(namespace="of-setting", project="p", domain="d")
SPEC = {"image": "a", "ports": [{"name": "grpc", "port": 9000}]}
FILE = """
apiVersion: data-service/v1
metadata: {name: graph, namespace: of-file, project: other}
spec: {image: b, ports: [{name: grpc, port: 9000}]}
"""


def read(root: Path = Path("/nowhere"), **fields: Any) -> Any:
    return service(StackConfig("my-stack", **fields), root, DEFAULTS)


def test_the_specification_in_the_configuration():
    identity, spec = read(spec=SPEC)
    assert (identity.service, identity.stack, identity.namespace) == ("my-stack", "my-stack", "of-setting")
    assert spec == parse_spec(SPEC)
    identity, _ = read(spec=SPEC, name="graph", namespace="mine")
    assert (identity.service, identity.stack, identity.namespace) == ("graph", "my-stack", "mine")


def test_a_file(tmp_path: Path):
    (tmp_path / "service.yaml").write_text(FILE)
    identity, spec = read(tmp_path, file="service.yaml")
    assert (identity.service, identity.namespace, identity.project, identity.domain) == (
        "graph",
        "of-file",
        "other",
        "d",
    )
    assert (identity.stack, spec.image) == ("my-stack", "b")


def test_one_of_several_services_of_a_file(tmp_path: Path):
    (tmp_path / "service.yaml").write_text(f"{FILE}---{FILE.replace('graph', 'second')}")
    assert read(tmp_path, file="service.yaml", name="second")[0].service == "second"
    with pytest.raises(SpecError, match="graph, second"):
        read(tmp_path, file="service.yaml")


def test_an_identity_that_was_checked_out_is_kept_whole():
    identity = for_name("p2", "d2", namespace="n2", name="graph", owner="exec")
    assert read(spec=SPEC, identity=asdict(identity))[0] == identity


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "data-service:spec"),
        ({"spec": SPEC, "file": "service.yaml"}, "data-service:spec"),
        ({"spec": {**SPEC, "imgae": "x"}}, "did you mean image"),
        ({"spec": SPEC, "name": "Not_A_Name"}, "data-service:name"),
        ({"spec": SPEC, "identity": {"oner": "x"}}, "data-service:identity.oner"),
    ],
)
def test_wrong_configurations_name_the_key(fields: dict[str, Any], said: str):
    with pytest.raises(SpecError, match=said) as caught:
        read(**fields)
    assert "Pulumi.my-stack.yaml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(UsageError, match=r"missing\.yaml"):
        read(tmp_path, file="missing.yaml")
