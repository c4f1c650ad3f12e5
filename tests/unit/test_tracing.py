"""Traces: sent by OTLP to a real receiver where the environment asks for them, and not even imported elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp import Receiver, receiving

from provisioner import tracing
from provisioner.errors import UsageError

VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_TRACES_EXPORTER",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    tracing.stop()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        yield made


def test_spans_reach_the_receiver_with_what_their_outer_one_tells(receiver: Receiver) -> None:
    tracing.start()
    with tracing.span("operation apply", execution="e1", project="p", domain="d", stack="s") as traced:
        with tracing.span("pulumi up", stack="s"):
            pass
        traced.fail("EngineFailed", "exit code 1")
    tracing.stop()
    assert receiver.services == {tracing.SERVICE}
    whose = {tracing.EXECUTION: "e1", tracing.PROJECT: "p", tracing.DOMAIN: "d", tracing.STACK: "s"}
    assert receiver.attributes("pulumi up") == whose
    assert receiver.attributes("operation apply") == {**whose, "error.type": "EngineFailed"}
    outer, inner = receiver.spans["operation apply"][0], receiver.spans["pulumi up"][0]
    assert (inner.parent_span_id, inner.trace_id) == (outer.span_id, outer.trace_id)
    assert outer.status.message == "exit code 1"


def test_a_call_belongs_to_the_trace_of_its_caller(receiver: Receiver) -> None:
    tracing.start()
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with tracing.span("GetTask", {"traceparent": f"00-{trace}-{parent}-01"}):
        pass
    with tracing.span("DeleteTask", {"traceparent": "nonsense"}):
        pass
    tracing.stop()
    span = receiver.spans["GetTask"][0]
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.kind) == (trace, parent, Span.SPAN_KIND_SERVER)
    assert receiver.spans["DeleteTask"][0].parent_span_id == b""


def test_the_name_of_the_service_can_be_chosen(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "graphs")
    tracing.start()
    with tracing.span("GetTask"):
        pass
    tracing.stop()
    assert receiver.services == {"graphs"}


PROGRAM = """
import sys
from provisioner import tracing
tracing.start()
with tracing.span("GetTask", stack="s") as span:
    span.tell(phase="Ready")
    span.fail("Code", "message")
tracing.stop()
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_nothing_is_imported_where_nobody_asks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_who_asks_without_the_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(
        UsageError, match="OTEL_TRACES_EXPORTER asks for traces, and OpenTelemetry is not installed"
    ) as e:
        tracing.start({"OTEL_TRACES_EXPORTER": "otlp"})
    assert "[otel]" in e.value.hint


def test_a_protocol_that_there_is_not_is_named() -> None:
    with pytest.raises(UsageError, match="'http/json' is not known"):
        tracing.start({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "OTEL_TRACES_EXPORTER": st.sampled_from(["", "otlp", "none", "console"]),
            "OTEL_SDK_DISABLED": st.sampled_from(["", "true", "True", "false"]),
            "OTEL_EXPORTER_OTLP_ENDPOINT": st.sampled_from(["", "http://c:4317"]),
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": st.sampled_from(["", "http://c:4317"]),
        },
    )
)
def test_traces_are_wanted_only_where_they_can_be_sent_and_are_not_turned_off(environment: dict[str, str]) -> None:
    found = tracing.wanted(environment)
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    other = environment.get("OTEL_TRACES_EXPORTER", "") in ("none", "console")
    named = environment.get("OTEL_TRACES_EXPORTER") == "otlp" or any(
        value for name, value in environment.items() if name.endswith("ENDPOINT")
    )
    assert bool(found) == (named and not off and not other)
    assert found == "" or environment[found]
