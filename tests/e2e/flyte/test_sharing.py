"""Services that several executions use: real Leases, a real engine, and ends that must not be somebody else's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from flyteidl.core.execution_pb2 import TaskExecution

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import STATEFULSETS
from provisioner.cluster.leases import LEASES, UserLeases
from provisioner.control.usage import Hold, Usage
from provisioner.demo.caller import Caller
from provisioner.demo.objects import JOBS, await_true
from provisioner.flyte import CleanupTask, DataServiceConfig, DataServiceTask, attach, release
from provisioner.flyte.cleaning import CLEANUP_TYPE
from provisioner.flyte.meta import DataServiceMeta
from provisioner.identity import LABEL_STACK, User, for_name
from provisioner.spec import Port

PATIENCE = 120.0


@pytest.fixture
def shared(template, request):
    """A service that is one for all executions of these tests' project; its name is this test's."""
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[-40:].strip("-")
    return template(name=name, shared=True)


@pytest.fixture
def cleaner(server):
    connection = Caller(server.address, CLEANUP_TYPE)
    yield connection
    connection.close()


@pytest.fixture
def leases(objects):
    def leases(meta: bytes) -> list[str]:
        stack = DataServiceMeta.decode(meta).content.request.stack
        return sorted(item["spec"]["holderIdentity"] for item in objects.listed(LEASES, f"{LABEL_STACK}={stack}"))

    return leases


def test_it_goes_with_its_last_user(caller, shared, execution, leases, left, objects) -> None:
    first, second = caller.create(shared, execution("a")), caller.create(shared, execution("b"))
    services = [caller.service(meta, PATIENCE) for meta in (first, second)]
    assert services[0] == services[1]
    assert leases(first) == [f"p:d:{execution(word).name}:n0" for word in "ab"]
    stack = services[0].stack
    before = objects.pod_uids(f"{LABEL_STACK}={stack}")

    caller.delete(first)
    await_true(lambda: len(leases(second)) == 1, PATIENCE, "the first has left")
    # The other is told as before, and a third joins what is there.
    third = caller.create(shared, execution("c"))
    caller.service(third, PATIENCE)
    assert caller.final(second, PATIENCE).phase == TaskExecution.SUCCEEDED
    assert objects.pod_uids(f"{LABEL_STACK}={stack}") == before

    caller.delete(second)
    caller.delete(third)
    await_true(lambda: left(first) == [] and leases(first) == [], PATIENCE, "it has gone with the last")


def test_who_comes_after_the_last_gets_a_new_one(caller, shared, execution, left, objects) -> None:
    first = caller.create(shared, execution("a"))
    stack = caller.service(first, PATIENCE).stack
    before = objects.pod_uids(f"{LABEL_STACK}={stack}")
    caller.delete(first)
    await_true(lambda: left(first) == [], PATIENCE, "it has gone")
    second = caller.create(shared, execution("b"))
    caller.service(second, PATIENCE)
    after = objects.pod_uids(f"{LABEL_STACK}={stack}")
    assert len(after) == 2
    assert not set(after.values()) & set(before.values())
    caller.delete(second)
    await_true(lambda: left(second) == [], PATIENCE, "nothing of it is left")


def test_the_end_of_its_owner_leaves_it_to_those_who_use_it(caller, template, serialize, execution, left) -> None:
    owned = caller.create(template(), execution("owner"))
    service = caller.service(owned, PATIENCE)
    user = caller.create(serialize(attach(service.name)), execution("user"))
    assert caller.service(user, PATIENCE) == service
    caller.delete(owned)
    await_true(lambda: caller.poll(owned).custom_info["phase"] == "InUse", PATIENCE, "the removal found its user")
    assert caller.final(user, PATIENCE).phase == TaskExecution.SUCCEEDED
    caller.delete(user)
    await_true(lambda: left(owned) == [], PATIENCE, "it has gone with its last user")


def test_a_service_of_another_project_is_out_of_reach(
    caller, template, serialize, execution, cleaner, objects, left
) -> None:
    owned = caller.create(template(), execution("owner"))
    service = caller.service(owned, PATIENCE)
    before = objects.pod_uids(f"{LABEL_STACK}={service.stack}")
    stranger = execution("stranger")
    use, end = serialize(attach(service.name)), serialize(CleanupTask(name="flow.end"))
    named = serialize(
        DataServiceTask(
            name="flow.same",
            task_config=DataServiceConfig(
                name=service.name, shared=True, image="localhost/busybox:sandbox", ports=[Port(name="main", port=1)]
            ),
        )
    )
    for task in (use, end, named):
        task.id.project = "q"
    for calls, meta in (
        (caller, caller.create(use, stranger)),
        (cleaner, cleaner.create(end, stranger, release_name=service.name)),
    ):
        answer = calls.final(meta, PATIENCE)
        assert answer.phase == TaskExecution.FAILED
        assert answer.agent_error.code == "NotYours"
        calls.delete(meta)
    # To make one of the same name is to meet somebody else's objects.
    update = caller.create(named, stranger)
    answer = caller.final(update, PATIENCE)
    assert (answer.phase, answer.agent_error.code) == (TaskExecution.FAILED, "NotOurs")
    caller.delete(update)
    assert objects.pod_uids(f"{LABEL_STACK}={service.stack}") == before
    assert caller.final(owned, PATIENCE).phase == TaskExecution.SUCCEEDED
    caller.delete(owned)
    await_true(lambda: left(owned) == [], PATIENCE, "nothing of it is left")


def test_the_cleanup_waits_for_a_job_and_verifies(
    caller, cleaner, template, serialize, execution, objects, left
) -> None:
    meta = caller.create(template(), execution())
    service = caller.service(meta, PATIENCE)
    name = f"train-{service.name}"
    wait = ["/bin/busybox", "sh", "-c", "while ! [ -e /tmp/end ]; do /bin/busybox sleep 0.2; done"]
    container = {"name": "train", "image": "localhost/busybox:sandbox", "command": wait}
    pod = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    objects.create(
        JOBS, {"metadata": {"name": name}, "spec": {"template": {"spec": pod}, "activeDeadlineSeconds": 300}}
    )
    end = serialize(CleanupTask(name="flow.end", wait_for="Job"))
    cleanup = cleaner.create(end, execution(), release_name=service.name, job_name=name)
    try:
        await_true(lambda: "waits for Job/" in cleaner.poll(cleanup).message, PATIENCE, "it waits for the job")
        assert caller.final(meta, PATIENCE).phase == TaskExecution.SUCCEEDED
    finally:
        objects.delete(JOBS, name)
    answer = cleaner.final(cleanup, PATIENCE)
    assert answer.phase == TaskExecution.SUCCEEDED, answer.message
    assert left(meta) == []
    # Cleaned up twice is cleaned up.
    again = cleaner.create(end, execution(), release_name=service.name, job_name=name)
    assert cleaner.final(again, PATIENCE).phase == TaskExecution.SUCCEEDED


def test_release_gives_a_shared_one_back(caller, cleaner, shared, serialize, execution, leases, left) -> None:
    metas = [caller.create(shared, execution(word)) for word in "ab"]
    service, _ = (caller.service(meta, PATIENCE) for meta in metas)
    give_back = serialize(release())
    answer = cleaner.final(cleaner.create(give_back, execution("a"), release_name=service.name), PATIENCE)
    assert answer.phase == TaskExecution.SUCCEEDED
    assert execution("b").name in answer.message
    assert leases(metas[0]) == [f"p:d:{execution('b').name}:n0"]
    answer = cleaner.final(cleaner.create(give_back, execution("b"), release_name=service.name), PATIENCE)
    assert answer.phase == TaskExecution.SUCCEEDED
    assert left(metas[0]) == []


@pytest.fixture
def usage(settings):
    """Two servers' view of users, with a clock that can be set forward."""

    class Clock:
        now = datetime.now(UTC)

    client = ClusterClient(settings)
    made = Usage(client, settings.model_copy(update={"user_lease": 600}), lambda: Clock.now)
    return made, Clock, UserLeases(client.transport)


def test_whichever_of_a_user_and_a_removal_comes_second_sees_the_other(usage, objects, request) -> None:
    made, clock, leases = usage
    identity = for_name("p", "d", namespace="default", name="users-and-removal")
    user = User("p", "d", request.node.name[:60], "n0")
    labels = identity.labels()
    pod = {"containers": [{"name": "main", "image": "localhost/busybox:sandbox"}]}
    objects.create(
        STATEFULSETS,
        {
            "metadata": {"name": identity.service, "labels": labels},
            "spec": {
                "replicas": 0,
                "serviceName": identity.service,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )
    try:
        # The removal first: who comes then is told that it is on its way out, until that was given up.
        assert made.close(identity) == ()
        assert made.take(identity, user) is Hold.CLOSING
        # The user first: the removal stops, and what stays is its users' own.
        assert made.close(identity) == (user.holder,)
        assert made.take(identity, user) is Hold.HELD
        assert made.give_back(identity, user) is True
        assert made.close(identity) == ()
        # A removal that was killed holds nobody up for ever.
        clock.now += timedelta(hours=1)
        assert made.take(identity, user) is Hold.HELD
        # A lease ends by expiry.
        clock.now += timedelta(seconds=601)
        assert made.close(identity) == ()
        assert [lease.holder for lease in leases.of(identity.stack, "default")] == [user.holder]
        assert made.give_back(identity, User("p", "d", user.execution, "n9"), whole_execution=True) is True
        assert leases.of(identity.stack, "default") == ()
    finally:
        objects.delete(STATEFULSETS, identity.service)
