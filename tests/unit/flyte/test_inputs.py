"""Inputs that fill a specification: typed, and blamed by name when they make it wrong."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
from flytekit import FlyteContext, kwtypes
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import Binary, LiteralMap, LiteralOffloadedMetadata, Scalar
from flytekit.models.literals import Literal as FlyteLiteral
from flytekit.types.file import FlyteFile
from hypothesis import given
from hypothesis import strategies as st

from provisioner.control.status import Phase
from provisioner.errors import SpecError
from provisioner.flyte import DataServiceConfig, DataServiceTask, community, inputs
from provisioner.flyte.meta import Rejected, Wanted
from provisioner.spec import DataServiceSpec, Port

BASE = {"image": "image", "ports": [{"name": "main", "port": 9000}]}


@dataclasses.dataclass
class Shape:
    replicas: int
    labels: dict[str, str]


def literals(**values: Any) -> LiteralMap:
    """Inputs as CreateTask gets them: made by flytekit, and through protobuf."""
    context = FlyteContext.current_context()
    types = {name: type(value) for name, value in values.items()}
    types |= {name: list[str] for name, value in values.items() if isinstance(value, list)}
    types |= {name: dict[str, str] for name, value in values.items() if isinstance(value, dict)}
    made = TypeEngine.dict_to_literal_map(context, values, type_hints=types)
    return LiteralMap.from_flyte_idl(made.to_flyte_idl())


def filled(values: LiteralMap | None, **fields: Any) -> DataServiceSpec:
    spec = inputs.parse({"spec": {**BASE, **fields}}, values, source="task").spec
    assert spec is not None
    return spec


def refusal(values: LiteralMap | None, **fields: Any) -> str:
    with pytest.raises(SpecError) as caught:
        filled(values, **fields)
    return str(caught.value)


def test_a_number_stays_a_number_and_becomes_text_where_text_is_held() -> None:
    spec = filled(
        literals(n=3, share=0.5, port=7000, debug=True),
        replicas="{{.inputs.n}}",
        ports=[{"name": "main", "port": "{{ .Inputs.port }}"}],
        env={"SHARDS": "{{.inputs.n}}", "RATE": "{{.inputs.share}}", "DEBUG": "{{.inputs.debug}}"},
        args=["--shards={{.inputs.n}}/{{.inputs.port}}", "{{.inputs.n}}"],
        resources={"requests": {"cpu": "{{.inputs.share}}"}},
        nodeSelector={"port": "{{.inputs.port}}"},
    )
    assert spec.replicas == 3
    assert spec.ports == (Port(name="main", port=7000),)
    assert spec.env == {"SHARDS": "3", "RATE": "0.5", "DEBUG": "true"}
    assert spec.args == ("--shards=3/7000", "3")
    assert spec.resources.requests == {"cpu": "0.5"}
    assert spec.node_selector == {"port": "7000"}


def test_lists_maps_and_durations_take_the_place_of_a_whole_field() -> None:
    spec = filled(
        literals(command=["a", "b"], env={"A": "1"}, patience=datetime.timedelta(minutes=2)),
        command="{{.inputs.command}}",
        env="{{.inputs.env}}",
        startDeadline="{{.inputs.patience}}",
    )
    assert (spec.command, spec.env, spec.start_deadline) == (("a", "b"), {"A": "1"}, 120)


def test_a_file_is_its_address(tmp_path) -> None:
    (tmp_path / "edges").write_text("")
    values = literals(graph=FlyteFile(str(tmp_path / "edges"), remote_path=False))
    assert filled(values, args=["--graph={{.inputs.graph}}"]).args == (f"--graph={tmp_path / 'edges'}",)


def test_a_part_of_a_structure_is_read_as_flytekit_writes_it() -> None:
    # What a workflow passes on as `shape.replicas` is MessagePack, not a primitive.
    context = FlyteContext.current_context()
    shape = TypeEngine.to_literal(context, Shape(4, {"team": "a"}), Shape, TypeEngine.to_literal_type(Shape))
    values = LiteralMap({"shape": shape, **literals(n=4).literals})
    with pytest.raises(SpecError, match=r"spec\.labels\.replicas"):
        filled(values, labels="{{.inputs.shape}}")
    part = FlyteLiteral(scalar=Scalar(binary=Binary(value=b"\x04", tag="msgpack")))
    assert filled(LiteralMap({"n": part}), replicas="{{.inputs.n}}").replicas == 4


def test_an_optional_input_that_was_not_given_leaves_the_default() -> None:
    context = FlyteContext.current_context()
    optional = TypeEngine.to_literal_type(int | None)
    none = LiteralMap({"n": TypeEngine.to_literal(context, None, int | None, optional)})
    four = LiteralMap({"n": TypeEngine.to_literal(context, 4, int | None, optional)})
    assert filled(none, replicas="{{.inputs.n}}", env={"A": "{{.inputs.n}}"}) == filled(None)
    assert filled(four, replicas="{{.inputs.n}}").replicas == 4
    assert "spec.args[0]: input n was not given, and a text is needed here" in refusal(none, args=["-n{{.inputs.n}}"])


def test_an_error_names_the_field_and_the_input() -> None:
    text = refusal(
        literals(n=-1, port=70000), replicas="{{.inputs.n}}", ports=[{"name": "a", "port": "{{.inputs.port}}"}]
    )
    assert "spec.replicas: input should be greater than or equal to 0; its value comes from input n (got -1)" in text
    assert "spec.ports[0].port: " in text
    assert "its value comes from input port (got 70000)" in text
    assert "comes from input word" in refusal(literals(word="many"), replicas="{{.inputs.word}}")


def test_an_error_of_another_field_blames_no_input() -> None:
    text = refusal(literals(n=1), replicas="{{.inputs.n}}", replica=3)
    assert "did you mean replicas?" in text
    assert "comes from" not in text


def test_a_rule_that_names_a_field_in_kubernetes_spelling_names_the_input_too() -> None:
    probe = {"tcp_socket": {"port": "{{.inputs.port}}"}}
    text = refusal(literals(port=5), readiness_probe=probe)
    assert "spec.readinessProbe.tcpSocket.port: must be a declared port (main), not 5" in text
    assert "comes from input port" in text


def test_a_list_inside_of_a_text_is_refused() -> None:
    assert "spec.args[0]: input words is a list" in refusal(literals(words=["a"]), args=["{{.inputs.words}}"])
    assert "spec.image: input env is a map" in refusal(literals(env={"a": "b"}), image="{{.inputs.env}}:1")


def test_an_input_that_flyte_does_not_send_is_named() -> None:
    assert "spec.replicas: the name of an input of the task; it has m (got {{.inputs.n}})" in refusal(
        literals(m=1), replicas="{{.inputs.n}}"
    )
    assert "it has none" in refusal(None, replicas="{{.inputs.n}}")


def test_an_offloaded_input_is_refused() -> None:
    large = FlyteLiteral(offloaded_metadata=LiteralOffloadedMetadata("s3://x", 1, None))
    assert "input n is too large" in refusal(LiteralMap({"n": large}), replicas="{{.inputs.n}}")


def test_an_input_is_not_read_as_a_template() -> None:
    values = literals(a="{{.inputs.b}}", b="secret")
    assert filled(values, env={"A": "{{.inputs.a}}"}).env == {"A": "{{.inputs.b}}"}


@given(st.text(max_size=40), st.integers(0, 10_000))
def test_what_holds_no_template_is_left_alone(text: str, replicas: int) -> None:
    custom = {"spec": {**BASE, "args": [text.replace("{", "(")], "replicas": replicas}}
    read = inputs.parse(custom, None, source="task").spec
    assert read is not None
    assert (read.args, read.replicas) == ((text.replace("{", "("),), replicas)


def test_a_task_is_checked_when_it_is_written() -> None:
    def task(declared: Any = None, **fields: Any) -> DataServiceTask:
        ports = fields.pop("ports", [Port(name="main", port=1)])
        return DataServiceTask("t", DataServiceConfig(image="image", ports=ports, **fields), inputs=declared)

    task(kwtypes(n=int, port=int), replicas="{{.inputs.n}}", ports=[{"name": "main", "port": "{{.inputs.port}}"}])
    with pytest.raises(SpecError, match=r"spec\.replicas: the name of an input of the task; it has m"):
        task(kwtypes(m=int), replicas="{{.inputs.n}}")
    with pytest.raises(SpecError, match=r"spec\.startDeadline") as caught:
        task(kwtypes(n=int), replicas="{{.inputs.n}}", start_deadline="soon")
    assert len(caught.value.problems) == 1


def test_a_secret_written_as_a_mapping_does_not_go_into_a_task_template() -> None:
    config = DataServiceConfig(image="i", ports=[Port(name="main", port=1)], env={"TOKEN": {"secret": "hunter2"}})
    with pytest.raises(SpecError, match=r"env\.TOKEN") as caught:
        DataServiceTask("t", config)
    assert "hunter2" not in str(caught.value)


def test_the_connector_puts_the_inputs_in(connector, serialized, execution, control) -> None:
    config = DataServiceConfig(image="image", ports=[Port(name="main", port=1)], replicas="{{.inputs.n}}")
    template = serialized(DataServiceTask("t", config, inputs=kwtypes(n=int)))
    meta = connector.create(template, inputs=literals(n=5), task_execution_metadata=execution())
    assert isinstance(meta.content, Wanted)
    assert meta.content.request.spec.replicas == 5
    control.answer = {"phase": Phase.READY}
    meta = connector.create(template, inputs=literals(n=-5), task_execution_metadata=execution())
    assert isinstance(meta.content, Rejected)
    assert "comes from input n" in connector.get(meta).message


def test_the_community_plugin_s_names_are_filled_as_well(connector, serialized, execution) -> None:
    config = community.DataServiceConfig(Image="image", Replicas="{{.inputs.n}}", Port="{{.inputs.port}}")
    template = serialized(community.DataServiceTask("t", config, inputs=kwtypes(n=int, port=int)))
    meta = connector.create(template, inputs=literals(n=2, port=7), task_execution_metadata=execution())
    assert meta.content.request.spec.replicas == 2
    assert meta.content.request.spec.ports == (Port(name="main", port=7),)


def test_the_service_to_use_may_be_an_input(connector, serialized, execution) -> None:
    config = DataServiceConfig(existing_release_name="{{.inputs.release}}")
    template = serialized(DataServiceTask("t", config, inputs=kwtypes(release=str)))
    meta = connector.create(template, inputs=literals(release="graph"), task_execution_metadata=execution())
    assert meta.content.service == "graph"
