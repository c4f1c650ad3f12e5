"""CreateTask, GetTask and DeleteTask, each through every branch."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets

import pytest
from flyteidl.admin.agent_pb2 import AgentError
from flyteidl.core.execution_pb2 import ExecutionError, TaskExecution
from flytekit import FlyteContext, kwtypes
from flytekit.core.type_engine import TypeEngine
from flytekit.extend.backend.base_connector import ConnectorRegistry, Resource
from flytekit.models.literals import LiteralMap

from provisioner import settings
from provisioner.control.status import Endpoint, Phase
from provisioner.errors import PermanentError, RefusedError, TransientError, UsageError
from provisioner.flyte import DataService, DataServiceConfig, DataServiceConnector, DataServiceTask, community
from provisioner.flyte.meta import Attached, DataServiceMeta, Rejected, Wanted
from provisioner.flyte.runtime import Runtime
from provisioner.identity import Identity, User, for_name
from provisioner.spec import Port


def wire(meta: DataServiceMeta) -> DataServiceMeta:
    """As it comes back from Flyte."""
    return DataServiceMeta.decode(meta.encode())


def literals(resource: Resource) -> dict[str, object]:
    answer = asyncio.run(resource.to_flyte_idl())
    return dict(LiteralMap.from_flyte_idl(answer.outputs).literals)


@pytest.fixture
def attach(serialized):
    config = DataServiceConfig(existing_release_name="shared-graph")
    return serialized(DataServiceTask(name="flow.attach", task_config=config))


@pytest.fixture
def bad(template):
    template.custom["spec"].update({"image": "No Image", "replicas": -1.0, "replica": 3.0})
    return template


def test_create_asks_for_the_service_of_this_execution(connector, control, template, execution) -> None:
    meta = connector.create(template, task_execution_metadata=execution())
    assert isinstance(meta.content, Wanted)
    request = meta.content.request
    assert control.calls == [("ensure", request.stack)]
    assert request.identity.namespace == "p-d"
    assert request.identity.owner == "exec1"
    assert request.identity.service.startswith("graph-")
    assert request.accepted_at == 1000.0
    assert request.spec.replicas == 3
    assert meta.content.outputs == ("service",)


def test_the_same_execution_id_is_the_same_service_and_any_other_is_not(connector, template, execution) -> None:
    def stack(**changes: object) -> str:
        return connector.create(template, task_execution_metadata=execution(**changes)).content.request.stack

    different = [
        {"project": "q"},
        {"domain": "e"},
        {"name": "exec2"},
        {"node": "n1"},
        {"task": "other"},
        {"attempt": 1},
        {"namespace": "other"},
    ]
    stacks = [stack(), *(stack(**change) for change in different)]
    assert len(set(stacks)) == len(stacks)
    assert stack() == stacks[0]


def test_without_a_namespace_the_setting_s_is_used(connector, template, execution) -> None:
    meta = connector.create(template, task_execution_metadata=execution(namespace=""))
    assert meta.content.request.identity.namespace == settings.load().namespace


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.QUEUED, TaskExecution.QUEUED),
        (Phase.APPLYING, TaskExecution.INITIALIZING),
        (Phase.STARTING, TaskExecution.RUNNING),
        (Phase.READY, TaskExecution.SUCCEEDED),
        (Phase.FAILED, TaskExecution.FAILED),
        (Phase.REMOVING, TaskExecution.FAILED),
        (Phase.GONE, TaskExecution.FAILED),
    ],
)
def test_each_phase_has_its_answer(connector, control, template, execution, phase, expected) -> None:
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    control.answer = {"phase": phase, "reason": "Why", "message": "what", "hint": "then", "ready": 1}
    resource = connector.get(meta)
    assert resource.phase == expected
    assert "Why: " in resource.message
    assert "what" in resource.message
    assert "then" in resource.message
    assert (resource.outputs is not None) == (phase is Phase.READY)
    info = asyncio.run(resource.to_flyte_idl()).custom_info
    assert info["phase"] == phase.value
    assert info["reason"] == "Why"
    assert (info["ready"], info["wanted"]) == (1, 3)
    assert info["stack"] == meta.content.request.stack


def test_success_gives_a_data_service_that_a_downstream_task_can_read(connector, control, template, execution) -> None:
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    control.answer = {"phase": Phase.READY}
    found = literals(connector.get(meta))
    assert set(found) == {"service"}
    service = TypeEngine.to_python_value(FlyteContext.current_context(), found["service"], DataService)
    name = meta.content.request.identity.service
    assert service == DataService(
        name=name,
        namespace="p-d",
        dns_name=f"{name}.p-d.svc.cluster.local",
        stack=meta.content.request.stack,
        ports={"grpc": 9000, "http": 9001},
        endpoints=[
            Endpoint(ordinal, f"{name}-{ordinal}.{name}.p-d.svc.cluster.local", port, port_name)
            for ordinal in range(3)
            for port_name, port in (("grpc", 9000), ("http", 9001))
        ],
    )


def test_a_template_of_the_community_plugin_gets_its_name(connector, control, serialized, execution) -> None:
    config = community.DataServiceConfig(Name="gnn", Image="image", Port=1234, Replicas=2)
    template = serialized(community.DataServiceTask(name="t", inputs=kwtypes(ds=str), task_config=config))
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    control.answer = {"phase": Phase.READY}
    found = literals(connector.get(meta))
    assert {name: value.scalar.primitive.string_value for name, value in found.items()} == {
        "name": meta.content.request.identity.service
    }


def test_a_bad_specification_fails_for_good_at_the_first_poll_with_every_problem(
    connector, control, bad, execution
) -> None:
    meta = wire(connector.create(bad, task_execution_metadata=execution()))
    resource = connector.get(meta)
    assert resource.phase == TaskExecution.FAILED
    for part in ("InvalidSpec", "spec.image", "No Image", "spec.replicas", "-1", "did you mean replicas?"):
        assert part in resource.message
    connector.delete(meta)
    assert control.calls == []


def test_very_many_problems_are_cut_and_counted(connector, template, execution) -> None:
    template.custom["spec"].update({f"unknown{i}": "x" for i in range(500)})
    meta = connector.create(template, task_execution_metadata=execution())
    assert len(meta.content.message) < 7000
    shown = meta.content.message.count("unknown field")
    assert meta.content.message.endswith(f"... and {500 - shown} more")


def test_an_output_that_a_data_service_does_not_have_is_refused(connector, template, execution) -> None:
    interface = template.interface
    interface.outputs["other"] = interface.outputs["service"]
    content = connector.create(template, task_execution_metadata=execution()).content
    assert isinstance(content, Rejected)
    assert "outputs.other" in content.message


def test_a_request_without_an_execution_id_is_refused(connector, template, execution) -> None:
    content = connector.create(template, task_execution_metadata=execution(name="")).content
    assert isinstance(content, Rejected)
    assert content.reason == "NoExecutionId"


def test_a_specification_too_large_for_flyte_is_refused(connector, template, execution) -> None:
    noise = secrets.token_hex(10_000)
    template.custom["spec"]["env"] = {"NOISE": noise}
    content = connector.create(template, task_execution_metadata=execution()).content
    assert isinstance(content, Rejected)
    assert content.reason == "SpecTooLarge"


def test_a_secret_is_sealed_before_anything_keeps_it(
    connector, control, template, execution, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(settings, "load", lambda: settings.Settings(passphrase_file=tmp_path / "passphrase"))
    template.custom["spec"]["env"] = {"TOKEN": {"secret": "hunter2"}}
    meta = connector.create(template, task_execution_metadata=execution())
    assert b"hunter2" not in meta.encode()
    assert control.requests[meta.content.request.stack].spec == wire(meta).content.request.spec
    unreadable = settings.Settings(passphrase_file=tmp_path)
    monkeypatch.setattr(settings, "load", lambda: unreadable)
    with pytest.raises(TransientError) as caught:
        connector.create(template, task_execution_metadata=execution())
    assert "hunter2" not in str(caught.value)


def test_a_refusal_by_control_is_permanent(connector, control, template, execution) -> None:
    control.error = RefusedError("Service p-d/graph belongs to somebody else", reason="NotOurs")
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    assert connector.get(meta).phase == TaskExecution.FAILED
    control.error = None
    created = wire(connector.create(template, task_execution_metadata=execution()))
    control.error = PermanentError("no such namespace", reason="NamespaceNotFound", hint="create it")
    resource = connector.get(created)
    assert resource.phase == TaskExecution.FAILED
    assert "NamespaceNotFound: no such namespace\ncreate it" in resource.message


@pytest.mark.parametrize(
    "error", [TransientError("the API server is away", hint="wait"), ConnectionResetError("peer"), KeyError("bug")]
)
def test_a_fault_that_passes_is_answered_as_running(connector, control, template, execution, error) -> None:
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    control.error = error
    resource = connector.get(meta)
    assert resource.phase == TaskExecution.RUNNING
    assert str(error) in resource.message
    control.error = None
    assert connector.get(meta).phase == TaskExecution.QUEUED


def test_create_survives_a_fault_and_the_first_poll_asks_again(connector, control, template, execution) -> None:
    control.error = TransientError("not now")
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    control.error = None
    assert connector.get(meta).phase == TaskExecution.QUEUED
    assert meta.content.request.stack in control.requests


def test_control_that_cannot_start_never_fails_a_task(template, execution) -> None:
    def broken() -> None:
        raise PermanentError("settings are not valid", reason="Usage")

    connector = DataServiceConnector(Runtime(broken))
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    resource = connector.get(meta)
    assert resource.phase == TaskExecution.RUNNING
    assert "cannot start: settings are not valid" in resource.message


def test_a_later_attempt_removes_what_the_earlier_ones_left(connector, control, template, execution) -> None:
    stacks = []
    for attempt in range(3):
        control.calls.clear()
        meta = wire(connector.create(template, task_execution_metadata=execution(attempt=attempt)))
        stacks.append(meta.content.request.stack)
        assert control.calls == [*(("leave", stack) for stack in stacks[:-1]), ("ensure", stacks[-1])]
    # Nobody has to remember it: after a crash the poll says so again.
    control.calls.clear()
    connector.get(meta)
    assert control.calls == [("leave", stacks[0]), ("leave", stacks[1]), ("observe", stacks[2])]


def test_what_is_to_be_retained_is_no_remainder_of_an_attempt(connector, control, template, execution) -> None:
    template.custom["spec"]["deletionPolicy"] = "Retain"
    connector.create(template, task_execution_metadata=execution(attempt=2))
    assert [call for call, _ in control.calls] == ["ensure"]


def test_an_attempt_that_cannot_be_real_asks_for_a_bounded_number_of_removals(
    connector, control, template, execution
) -> None:
    meta = wire(connector.create(template, task_execution_metadata=execution(attempt=4_000_000_000)))
    assert [call for call, _ in control.calls] == ["leave"] * 32 + ["ensure"]
    assert len(meta.encode()) < 2048


def test_a_fault_while_an_earlier_attempt_is_removed_does_not_stop_the_new_one(
    connector, control, template, execution, monkeypatch
) -> None:
    def fail(request: object) -> None:
        raise TransientError("not now")

    monkeypatch.setattr(control, "leave", fail)
    meta = wire(connector.create(template, task_execution_metadata=execution(attempt=1)))
    assert connector.get(meta).phase == TaskExecution.QUEUED
    assert [call for call, _ in control.calls] == ["ensure", "observe"]


@pytest.mark.parametrize(
    ("reason", "origin"), [("ImageNotFound", ExecutionError.USER), ("RegistryUnreachable", ExecutionError.SYSTEM)]
)
def test_a_failure_says_its_code_and_who_is_to_act(connector, control, template, execution, reason, origin) -> None:
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    control.answer = {"phase": Phase.FAILED, "reason": reason, "message": "what"}
    error = asyncio.run(connector.get(meta).to_flyte_idl()).agent_error
    assert (error.code, error.origin) == (reason, origin)
    assert error.kind == AgentError.NON_RECOVERABLE
    control.answer = {"phase": Phase.STARTING, "reason": reason}
    assert not asyncio.run(connector.get(meta).to_flyte_idl()).HasField("agent_error")


def test_a_rejected_request_is_the_author_s_and_an_unreadable_meta_the_system_s(connector, bad, execution) -> None:
    rejected = wire(connector.create(bad, task_execution_metadata=execution()))
    error = asyncio.run(connector.get(rejected).to_flyte_idl()).agent_error
    assert (error.code, error.origin) == ("InvalidSpec", ExecutionError.USER)
    foreign = DataServiceMeta.decode(b"something else")
    error = asyncio.run(connector.get(foreign).to_flyte_idl()).agent_error
    assert (error.code, error.origin) == ("UnreadableMeta", ExecutionError.SYSTEM)


def test_log_links_are_there_from_the_first_poll(connector, control, template, execution, monkeypatch) -> None:
    links = {"Logs": "https://logs/{{ .namespace }}/{{.podName}}", "Board": "https://board/{{ .executionName }}"}
    given = settings.Settings(log_links=links)
    monkeypatch.setattr(settings, "load", lambda: given)
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    service = meta.content.request.identity.service
    found = asyncio.run(connector.get(meta).to_flyte_idl()).log_links
    assert [(link.name, link.uri) for link in found] == [
        *((f"Logs ({service}-{ordinal})", f"https://logs/p-d/{service}-{ordinal}") for ordinal in range(3)),
        ("Board", "https://board/exec1"),
    ]


def test_metrics_are_what_the_watch_knows(connector, control, template, execution) -> None:
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    service = meta.content.request.identity.service
    control.answer = {"phase": Phase.STARTING, "ready": 1}
    found = {result.metric: dict(result.data) for result in connector.get_metrics(meta).results}
    assert found["replicas"] == {"wanted": 3, "ready": 1, "pods": 2}
    assert found["restarts"] == {f"{service}-0": 0, f"{service}-1": 1}
    assert found["status"]["phase"] == "Starting"
    assert [result.metric for result in connector.get_metrics(meta, queries=["restarts", "cpu"]).results] == [
        "restarts"
    ]


def test_what_never_became_a_service_has_no_logs_and_no_metrics(connector, control, bad, execution) -> None:
    meta = wire(connector.create(bad, task_execution_metadata=execution()))
    assert not connector.get_metrics(meta).results
    assert not connector.get_logs(meta).body.results
    assert control.calls == []


def test_delete_removes_and_may_be_repeated(connector, control, template, execution) -> None:
    meta = wire(connector.create(template, task_execution_metadata=execution()))
    connector.delete(meta)
    connector.delete(meta)
    stack = meta.content.request.stack
    assert control.calls[1:] == [("leave", stack), ("leave", stack)]


def test_a_service_to_be_retained_outlives_its_owner(connector, control, serialized, execution) -> None:
    config = DataServiceConfig(image="a", ports=[Port(name="main", port=1)], deletion_policy="Retain")
    kept = serialized(DataServiceTask(name="flow.kept", task_config=config))
    meta = connector.create(kept, task_execution_metadata=execution())
    connector.delete(meta)
    assert [call for call, _ in control.calls] == ["ensure"]


def test_an_attached_service_is_waited_for_and_never_touched(connector, control, attach, execution) -> None:
    meta = wire(connector.create(attach, task_execution_metadata=execution()))
    user = User("p", "d", "exec1", "n0")
    assert meta.content == Attached("p-d", "shared-graph", ("service",), user)
    control.answer = {"phase": Phase.STARTING}
    assert connector.get(meta).phase == TaskExecution.RUNNING
    control.answer = {"phase": Phase.READY}
    found = literals(connector.get(meta))
    service = TypeEngine.to_python_value(FlyteContext.current_context(), found["service"], DataService)
    assert service.name == "shared-graph"
    assert service.ports == {"main": 7}
    assert set(control.users) == {"p:d:exec1:n0"}
    control.calls.clear()
    control.shown = Identity("p", "d", "p-d", "shared-graph", "the-stack", "")
    connector.delete(meta)
    assert control.calls == [("release", "the-stack p:d:exec1:n0")]
    # What the cluster does not show any more may still be held, by either name that its stack can have.
    control.calls.clear()
    control.shown = None
    connector.delete(meta)
    named = for_name("p", "d", namespace="p-d", name="shared-graph").stack
    assert control.calls == [("release", f"{stack} p:d:exec1:n0") for stack in ("shared-graph", named)]


@pytest.fixture
def shared(serialized):
    config = DataServiceConfig(
        name="features", shared=True, image="store:1", ports=[Port(name="main", port=1)], replicas=2
    )
    return serialized(DataServiceTask(name="flow.features", task_config=config))


def test_a_shared_service_is_one_for_all_executions_of_its_project_and_domain(
    connector, control, shared, execution
) -> None:
    def asked(**changes: object):
        return wire(connector.create(shared, task_execution_metadata=execution(**changes))).content

    first, second, third = asked(), asked(name="exec2"), asked(attempt=3)
    assert first.request.identity.service == "features"
    assert first.request.identity.owner == ""
    assert first.request.shared
    assert first.request.identity == second.request.identity == third.request.identity
    assert (first.user.holder, second.user.holder, third.user.holder) == (
        "p:d:exec1:n0",
        "p:d:exec2:n0",
        "p:d:exec1:n0",
    )
    # A later attempt is the same user, and removes nothing of the others.
    assert {call for call, _ in control.calls} == {"use"}
    assert asked(project="q").request.stack != first.request.stack
    assert asked(domain="e").request.stack != first.request.stack


def test_the_end_of_one_user_of_a_shared_service_is_no_removal(connector, control, shared, execution) -> None:
    meta = wire(connector.create(shared, task_execution_metadata=execution()))
    connector.delete(meta)
    stack = meta.content.request.stack
    assert control.calls == [("use", stack), ("release", f"{stack} p:d:exec1:n0")]
    assert control.released == [meta.content.request]


def test_a_shared_service_that_fails_is_released_since_nobody_asks_again(connector, control, shared, execution) -> None:
    meta = wire(connector.create(shared, task_execution_metadata=execution()))
    control.answer = {"phase": Phase.FAILED, "reason": "CrashLoop"}
    assert connector.get(meta).phase == TaskExecution.FAILED
    assert control.calls[-1][0] == "release"


def test_in_a_local_run_nothing_is_shared(connector, control, shared, attach, monkeypatch) -> None:
    monkeypatch.setattr(connector._local, "own", lambda request: None)
    content = connector.create(shared).content
    assert not content.request.shared
    assert content.request.identity.service != "features"
    assert connector.create(attach).content.user is None


def test_a_newer_meta_is_waited_for_and_its_removal_is_not_pretended(connector, control) -> None:
    meta = DataServiceMeta.decode(b'{"v":9}')
    resource = connector.get(meta)
    assert resource.phase == TaskExecution.RUNNING
    assert "version 9" in resource.message
    with pytest.raises(TransientError, match="version 9"):
        connector.delete(meta)
    assert control.calls == []


def test_a_foreign_meta_fails_for_good(connector) -> None:
    resource = connector.get(DataServiceMeta.decode(b"something else"))
    assert resource.phase == TaskExecution.FAILED
    assert "another connector" in resource.message


def test_it_is_registered_once_and_for_its_task_type() -> None:
    registered = ConnectorRegistry.get_connector("dataservicetask")
    assert registered.name == "Data Service Connector"
    agent = ConnectorRegistry.get_connector_metadata(registered.name)
    assert [(item.name, item.version) for item in agent.supported_task_categories] == [("dataservicetask", 0)]
    assert not agent.is_sync


def test_importing_flytekit_starts_nothing() -> None:
    import subprocess
    import sys

    program = (
        "import sys, threading, flytekit\n"
        "from provisioner.flyte.runtime import RUNTIME\n"
        "assert RUNTIME._control is None\n"
        "assert not [name for name in sys.modules if name == 'pulumi' or name == 'pulumi_kubernetes']\n"
        "print(threading.active_count())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    without = subprocess.run(
        [sys.executable, "-c", "import threading; print(threading.active_count())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == without.stdout


def test_the_message_names_how_far_a_starting_service_is(connector, control, template, execution) -> None:
    meta = connector.create(template, task_execution_metadata=execution())
    control.answer = {"phase": Phase.STARTING, "reason": "Pulling", "message": "pulling", "hint": "wait", "ready": 2}
    assert connector.get(meta).message == "Pulling: 2 of 3 replicas are ready; pulling\nwait"


def test_the_answer_to_a_repeat_is_the_same(connector, template, execution) -> None:
    first = connector.create(template, task_execution_metadata=execution())
    again = connector.create(template, task_execution_metadata=execution())
    assert dataclasses.asdict(first.content.request.identity) == dataclasses.asdict(again.content.request.identity)
    assert first.encode() == again.encode()


def test_ports_are_known_even_of_a_paused_service(connector, control, serialized, execution) -> None:
    config = DataServiceConfig(image="image", ports=[Port(name="main", port=9)], replicas=0)
    meta = connector.create(
        serialized(DataServiceTask(name="t", task_config=config)), task_execution_metadata=execution()
    )
    control.answer = {"phase": Phase.READY}
    assert connector.get(meta).outputs["service"].ports == {"main": 9}


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """Access rules as the server has them."""

    def rules(text: str) -> None:
        path = tmp_path / "access.yaml"
        path.write_text(text)
        given = settings.Settings(access=path)
        monkeypatch.setattr(settings, "load", lambda: given)

    return rules


@pytest.mark.parametrize("what", ["own", "attached", "shared"])
def test_a_namespace_that_a_project_may_not_use_is_refused(
    connector, control, template, attach, shared, execution, rules, what
) -> None:
    rules("projects:\n- {namespaces: ['{project}-{domain}']}\n")
    chosen = {"own": template, "attached": attach, "shared": shared}[what]
    meta = wire(connector.create(chosen, task_execution_metadata=execution(namespace="kube-system")))
    assert meta.content.reason == "NamespaceNotAllowed"
    assert connector.get(meta).phase == TaskExecution.FAILED
    assert control.calls == []
    assert not isinstance(connector.create(chosen, task_execution_metadata=execution()).content, Rejected)


def test_a_service_account_that_a_project_may_not_use_is_refused(
    connector, control, template, execution, rules
) -> None:
    rules("projects:\n- {serviceAccounts: [default]}\n- {project: other, serviceAccounts: ['*']}\n")
    template.custom["spec"]["serviceAccount"] = "admin"
    assert connector.create(template, task_execution_metadata=execution()).content.reason == "ServiceAccountNotAllowed"
    other = connector.create(template, task_execution_metadata=execution(project="other", namespace="other-d"))
    assert isinstance(other.content, Wanted)


def test_wrong_access_rules_are_the_server_s_fault(connector, template, execution, rules) -> None:
    rules("projects: 3")
    with pytest.raises(UsageError, match="access rules"):
        connector.create(template, task_execution_metadata=execution())
