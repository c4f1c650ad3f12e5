"""CreateTask, GetTask and DeleteTask against a real server, engine and cluster."""

from __future__ import annotations

import dataclasses
import json

import grpc
import pytest
from flyteidl.admin.agent_pb2 import GetTaskLogsRequest, GetTaskMetricsRequest, TaskCategory
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service.agent_pb2_grpc import AsyncAgentServiceStub

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import PODS, SERVICES, STATEFULSETS
from provisioner.demo.caller import Caller, read_service
from provisioner.demo.objects import await_true
from provisioner.flyte import DataServiceConfig, DataServiceTask, community
from provisioner.flyte.meta import DataServiceMeta
from provisioner.identity import LABEL_STACK

PATIENCE = 120.0


def selector(meta: bytes) -> str:
    return f"{LABEL_STACK}={DataServiceMeta.decode(meta).content.request.stack}"


def test_create_ready_repeat_delete_gone(caller, template, execution, objects, left) -> None:
    meta = caller.create(template(), execution())
    identity = DataServiceMeta.decode(meta).content.request.identity
    answer = caller.final(meta, PATIENCE)
    assert answer.phase == TaskExecution.SUCCEEDED, answer.message
    service = read_service(answer)
    assert (service.name, service.namespace, service.stack) == (identity.service, "default", identity.stack)
    assert service.ports == {"main": 9000}
    assert service.dns_addresses() == [f"{identity.replica_host(0)}:9000", f"{identity.replica_host(1)}:9000"]

    before = objects.pod_uids(selector(meta))
    again = caller.create(template(), execution())
    assert caller.final(again, PATIENCE).phase == TaskExecution.SUCCEEDED
    assert len(objects.listed(STATEFULSETS, selector(meta))) == 1
    assert objects.pod_uids(selector(meta)) == before

    caller.delete(meta)
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


def test_the_replicas_are_reached_by_the_names_in_the_output(caller, template, execution, objects, left) -> None:
    meta = caller.create(template(), execution())
    service = caller.service(meta, PATIENCE)
    hosts = " ".join(endpoint.host for endpoint in service.endpoints)
    # A name is known to the cluster's DNS a moment after its pod is ready.
    attempt = "/bin/busybox nc -w 5 $host 9000 </dev/null"
    reach = f"for host in {hosts}; do until {attempt}; do /bin/busybox sleep 1; done; done"
    container = {"name": "reader", "image": "localhost/busybox:sandbox", "command": ["/bin/busybox", "sh", "-c", reach]}
    name = f"reader-{service.name}"
    objects.create(PODS, {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}})
    try:
        ended = ("Succeeded", "Failed")
        await_true(lambda: objects.get(PODS, name)["status"].get("phase") in ended, PATIENCE, "the reader has ended")
        assert objects.get(PODS, name)["status"]["phase"] == "Succeeded"
    finally:
        objects.delete(PODS, name)
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


def test_a_changed_specification_of_the_same_execution_is_an_update(caller, template, execution, objects, left) -> None:
    meta = caller.create(template(), execution())
    caller.service(meta, PATIENCE)
    before = objects.pod_uids(selector(meta))
    larger = caller.create(template(replicas=3), execution())
    service = caller.service(larger, PATIENCE)
    assert len(service.endpoints) == 3
    after = objects.pod_uids(selector(meta))
    assert len(after) == 3
    assert before.items() <= after.items()
    caller.delete(larger)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


def test_a_bad_specification_fails_for_good_with_every_problem(caller, template, execution) -> None:
    bad = template()
    bad.custom["spec"].update({"image": "No Image", "replicas": -1, "replica": 3})
    meta = caller.create(bad, execution())
    answer = caller.poll(meta)
    assert answer.phase == TaskExecution.FAILED
    for part in ("spec.image", "No Image", "spec.replicas", "did you mean replicas?"):
        assert part in answer.message
    caller.delete(meta)


def test_an_image_that_is_not_there_fails_and_names_it(caller, template, execution, left) -> None:
    meta = caller.create(template(image="127.0.0.1:5999/missing:1"), execution())
    answer = caller.final(meta, PATIENCE)
    assert answer.phase == TaskExecution.FAILED
    assert "127.0.0.1:5999/missing:1" in answer.message
    assert answer.custom_info["reason"]
    # Flyte never calls DeleteTask after FAILED.
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


def test_a_server_killed_after_create_task_is_no_loss(own_server, template, execution, left) -> None:
    first = Caller(own_server.address)
    meta = first.create(template(), execution())
    own_server.kill()
    first.close()
    own_server.start()
    second = Caller(own_server.address)
    service = second.service(meta, PATIENCE)
    assert len(service.endpoints) == 2
    second.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")
    second.close()


def test_two_executions_of_one_task_have_a_service_each(caller, template, execution, left) -> None:
    metas = [caller.create(template(), execution(word)) for word in ("a", "b")]
    services = [caller.service(meta, PATIENCE) for meta in metas]
    assert services[0].name != services[1].name
    caller.delete(metas[0])
    await_true(lambda: left(metas[0]) == [], PATIENCE, "the first is gone")
    assert caller.final(metas[1], PATIENCE).phase == TaskExecution.SUCCEEDED
    caller.delete(metas[1])
    await_true(lambda: left(metas[1]) == [], PATIENCE, "the second is gone")


def test_delete_before_create_has_finished_leaves_nothing(caller, template, execution, left) -> None:
    meta = caller.create(template(), execution())
    await_true(lambda: left(meta) != [], PATIENCE, "its creation has begun")
    caller.delete(meta)
    await_true(lambda: caller.poll(meta).custom_info["phase"] == "Gone", PATIENCE, "its removal is over")
    assert left(meta) == []


def test_the_failure_of_a_sibling_ends_a_service_that_still_starts(caller, template, execution, left) -> None:
    """Propeller aborts what runs beside a node that has failed, and says nothing more to that one."""
    nowhere = template(node_selector={"no-node-has-this": "true"}, start_deadline="1h")
    starting = caller.create(nowhere, dataclasses.replace(execution(), node="n0"))
    await_true(lambda: caller.poll(starting).custom_info["phase"] == "Starting", PATIENCE, "it is applied")
    sibling = caller.create(template(image="127.0.0.1:5999/missing:1"), dataclasses.replace(execution(), node="n1"))
    assert caller.final(sibling, PATIENCE).phase == TaskExecution.FAILED
    assert caller.poll(starting).custom_info["phase"] == "Starting"
    caller.delete(starting)
    for meta in (starting, sibling):
        await_true(lambda meta=meta: left(meta) == [], PATIENCE, "nothing of it is left")
    caller.delete(starting)
    # The cluster and the backend show nothing of it a while before its removal is over.
    await_true(lambda: caller.poll(starting).custom_info["phase"] == "Gone", PATIENCE, "its removal is over")


def test_what_the_server_logs_says_whose_it_is(own_server, template, execution) -> None:
    own = Caller(own_server.address)
    meta = own.create(template(replicas=1), execution())
    own.service(meta, PATIENCE)
    own.delete(meta)
    await_true(lambda: own.poll(meta).custom_info["phase"] == "Gone", PATIENCE, "its removal is over")
    own.close()
    assert own_server.stop() == 0
    lines = [json.loads(line) for line in own_server.log.read_text().splitlines() if line.startswith("{")]
    identity = DataServiceMeta.decode(meta).content.request.identity
    for event in ("service asked for", "removal asked for"):
        (line,) = [line for line in lines if line["event"] == event]
        told = {name: line[name] for name in ("stack_name", "execution", "project", "domain")}
        assert told == {"stack_name": identity.stack, "execution": identity.owner, "project": "p", "domain": "d"}
    of_it = [line for line in lines if line.get("stack_name") == identity.stack]
    assert [line["operation"] for line in of_it if line["event"] == "operation done"] == ["apply", "remove"]


def test_an_attached_service_is_what_its_owner_has(caller, template, serialize, execution, settings) -> None:
    owned = caller.create(template(), execution("owner"))
    service = caller.service(owned, PATIENCE)
    config = DataServiceConfig(existing_release_name=service.name)
    attached = caller.create(serialize(DataServiceTask(name="flow.user", task_config=config)), execution("user"))
    assert caller.service(attached, PATIENCE) == service
    caller.delete(attached)
    caller.delete(owned)
    identity = DataServiceMeta.decode(owned).content.request.identity
    await_true(lambda: not ClusterClient(settings).remaining(identity), PATIENCE, "the owner has removed it")


def test_attaching_does_not_end_the_service(caller, template, serialize, execution, objects, left) -> None:
    owned = caller.create(template(), execution("owner"))
    service = caller.service(owned, PATIENCE)
    before = objects.pod_uids(selector(owned))
    config = DataServiceConfig(existing_release_name=service.name)
    attached = caller.create(serialize(DataServiceTask(name="flow.user", task_config=config)), execution("user"))
    caller.delete(attached)
    # A service of another execution comes and goes, so that a removal would have had its turn.
    other = caller.create(template(), execution("other"))
    caller.service(other, PATIENCE)
    caller.delete(other)
    await_true(lambda: left(other) == [], PATIENCE, "the other is gone")
    assert objects.pod_uids(selector(owned)) == before
    caller.delete(owned)
    await_true(lambda: left(owned) == [], PATIENCE, "nothing of it is left")


def test_a_second_attempt_removes_what_the_first_left(caller, template, execution, objects, left) -> None:
    run = execution()
    first = caller.create(template(), run)
    # Propeller has given up on the first CreateTask: no DeleteTask follows.
    await_true(lambda: left(first) != [], PATIENCE, "its creation has begun")
    second = caller.create(template(), dataclasses.replace(run, attempt=1))
    service = caller.service(second, PATIENCE)
    await_true(lambda: left(first) == [], PATIENCE, "nothing of the first is left")
    assert len(objects.listed(STATEFULSETS, f"{LABEL_STACK}={service.stack}")) == 1
    caller.delete(second)
    await_true(lambda: left(second) == [], PATIENCE, "nothing of the second is left")


def test_delete_after_somebody_deleted_the_objects_ends_well(caller, template, execution, objects, left) -> None:
    meta = caller.create(template(), execution())
    service = caller.service(meta, PATIENCE)
    for resource in (STATEFULSETS, SERVICES):
        objects.delete(resource, service.name)
    caller.delete(meta)
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


def test_its_logs_and_metrics_are_the_cluster_s(caller, server, template, execution, left) -> None:
    speak = [
        "/bin/busybox",
        "sh",
        "-c",
        "for i in 1 2 3; do echo line $i; done; exec /bin/busybox nc -ll -p 9000 -e /bin/busybox true",
    ]
    meta = caller.create(template(command=speak), execution())
    service = caller.service(meta, PATIENCE)
    category = TaskCategory(name="dataservicetask")
    with grpc.insecure_channel(server.address) as channel:
        stub = AsyncAgentServiceStub(channel)

        def page(lines: int, token: str = "") -> tuple[list[str], str]:
            request = GetTaskLogsRequest(resource_meta=meta, task_category=category, lines=lines, token=token)
            header, body = stub.GetTaskLogs(request, timeout=30)
            return list(body.body.results), header.header.token

        everything = {f"{service.name}-{replica} | line {number}" for replica in (0, 1) for number in (1, 2, 3)}
        await_true(lambda: set(page(100)[0]) == everything, PATIENCE, "all has been written")
        found, token = page(2)
        assert len(found) == 2
        seen = set(found)
        while len(seen) < len(everything) and (found := (answer := page(2, token))[0]):
            token = answer[1]
            seen |= set(found)
        assert page(100, page(100)[1])[0] == []
        request = GetTaskMetricsRequest(resource_meta=meta, task_category=category)
        metrics = {item.metric: dict(item.data) for item in stub.GetTaskMetrics(request, timeout=30).results}
    assert metrics["replicas"] == {"wanted": 2, "ready": 2, "pods": 2}
    assert metrics["restarts"] == {f"{service.name}-0": 0, f"{service.name}-1": 0}
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


def test_attaching_to_what_does_not_exist_fails_and_says_so(caller, serialize, execution) -> None:
    config = DataServiceConfig(existing_release_name="no-such-service")
    meta = caller.create(serialize(DataServiceTask(name="flow.user", task_config=config)), execution())
    answer = caller.final(meta, PATIENCE)
    assert answer.phase == TaskExecution.FAILED
    assert "no-such-service" in answer.message


def test_a_template_registered_with_the_community_plugin_runs(caller, serialize, execution, left) -> None:
    config = community.DataServiceConfig(
        Name="gnn",
        Image="localhost/busybox:sandbox",
        Command=["/bin/busybox", "nc", "-ll", "-p", "1234", "-e", "/bin/busybox", "true"],
        Port=1234,
        Replicas=2,
    )
    meta = caller.create(serialize(community.DataServiceTask(name="flow.gnn", task_config=config)), execution())
    answer = caller.final(meta, PATIENCE)
    assert answer.phase == TaskExecution.SUCCEEDED, answer.message
    name = DataServiceMeta.decode(meta).content.request.identity.service
    assert answer.outputs.literals["name"].scalar.primitive.string_value == name
    caller.delete(meta)
    await_true(lambda: left(meta) == [], PATIENCE, "nothing of it is left")


@pytest.mark.parametrize("meta", [b'{"v":7,"request":{}}', b"garbage"])
def test_a_meta_that_cannot_be_read_is_answered(caller, meta: bytes) -> None:
    expected = TaskExecution.RUNNING if b'"v":7' in meta else TaskExecution.FAILED
    assert caller.poll(meta).phase == expected
