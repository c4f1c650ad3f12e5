"""What a server tells a collector of its calls and of its engine's operations."""

from __future__ import annotations

from pathlib import Path

import pytest
from otlp import receiving

from provisioner import tracing
from provisioner.demo.caller import Caller
from provisioner.demo.objects import await_true
from provisioner.demo.server import ServerProcess
from provisioner.flyte.meta import DataServiceMeta

PATIENCE = 120.0
CALLS = ("CreateTask", "GetTask", "DeleteTask")
OPERATIONS = {"operation apply": "pulumi up", "operation remove": "pulumi destroy"}


def test_calls_and_operations_are_traced_with_their_execution_and_stack(
    settings, template, execution, left, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = execution()
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        process = ServerProcess(settings, tmp_path)
        process.start()
        caller = Caller(process.address)
        meta = caller.create(template(), run)
        caller.service(meta, PATIENCE)
        caller.delete(meta)
        await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")
        caller.close()
        assert process.stop() == 0
    stack = DataServiceMeta.decode(meta).content.request.stack
    for name in (*CALLS, *OPERATIONS, *OPERATIONS.values()):
        told = receiver.attributes(name)
        assert (told[tracing.EXECUTION], told[tracing.STACK]) == (run.name, stack), name
    for outer, inner in OPERATIONS.items():
        # An operation that waits for objects to be gone is a span each time that it looks again.
        outers = {span.span_id for span in receiver.spans[outer]}
        assert {span.parent_span_id for span in receiver.spans[inner]} <= outers
