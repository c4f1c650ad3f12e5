"""The main path on a real cluster: create, ready, repeat, scale, fail with the cause, delete, gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import wait_for

from provisioner.cluster import ClusterClient
from provisioner.control.controller import Controller
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.settings import Settings

Make = Callable[..., ServiceRequest]
Until = Callable[..., Status]


def assert_gone(settings: Settings, request: ServiceRequest, record: Callable[[], list[Path]]) -> None:
    assert ClusterClient(settings).remaining(request.identity) == []
    assert record() == []


def test_create_ready_repeat_scale_delete(
    control: Controller, settings: Settings, make: Make, until: Until, record: Callable[[], list[Path]]
):
    request = make()
    control.ensure(request)
    ready = until(request, Phase.READY)
    assert (ready.ready, ready.wanted, len(ready.endpoints)) == (2, 2, 2)
    assert len([line for line in ready.changes if "StatefulSet" in line or "Service" in line]) >= 2

    control.ensure(request)
    assert control.settled(request), "a repeat changes nothing"
    assert until(request, Phase.READY).changes == ready.changes

    larger = make(replicas=3)
    assert larger.identity == request.identity
    control.ensure(larger)
    scaled = until(larger, Phase.READY)
    assert scaled.ready == 3
    assert any("spec.replicas" in line for line in scaled.changes), scaled.changes
    assert not any("replace" in line for line in scaled.changes), scaled.changes

    control.remove(larger)
    until(larger, Phase.GONE)
    assert_gone(settings, larger, record)


def test_scaling_keeps_the_running_pods(control: Controller, settings: Settings, make: Make, until: Until):
    from kubernetes import client, config

    config.load_kube_config(str(settings.kubeconfig), context=settings.context)
    pods = client.CoreV1Api()
    request = make()
    control.ensure(request)
    until(request, Phase.READY)

    def uid(ordinal: int) -> str:
        return pods.read_namespaced_pod(f"{request.identity.service}-{ordinal}", "default").metadata.uid

    before = [uid(0), uid(1)]
    control.ensure(make(replicas=3))
    until(make(replicas=3), Phase.READY)
    assert [uid(0), uid(1)] == before
    control.remove(request)
    until(request, Phase.GONE)


def failed(control: Controller, request: ServiceRequest) -> Status:
    import time

    deadline = time.monotonic() + 120
    while (status := control.observe(request)).phase is not Phase.FAILED:
        assert time.monotonic() < deadline, f"still {status}"
        time.sleep(0.2)
    return status


def test_image_that_cannot_be_pulled_fails_naming_it(
    control: Controller, settings: Settings, make: Make, record: Callable[[], list[Path]]
):
    # Nothing listens there: no other registry is ever asked.
    image = "127.0.0.1:5999/missing:1"
    request = make(image=image, imagePullPolicy="Always")
    control.ensure(request)
    status = failed(control, request)
    assert image in status.message
    assert status.reason == "RegistryUnreachable"
    assert status.hint
    await_removal(control, settings, request)
    assert_gone(settings, request, record)


def test_crash_loop_fails_with_exit_code_and_last_line(
    control: Controller, settings: Settings, make: Make, record: Callable[[], list[Path]]
):
    request = make(command=["/bin/busybox", "sh", "-c", "echo loading; echo no shard for me; exit 7"])
    control.ensure(request)
    status = failed(control, request)
    assert status.reason == "CrashLoop"
    assert "7" in status.message
    assert "no shard for me" in status.message
    await_removal(control, settings, request)
    assert_gone(settings, request, record)


def await_removal(control: Controller, settings: Settings, request: ServiceRequest) -> None:
    """What an execution owns is removed after its failure, without a DeleteTask."""
    import time

    client = ClusterClient(settings)
    deadline = time.monotonic() + 90
    while client.remaining(request.identity) or not control.settled(request):
        assert time.monotonic() < deadline, client.remaining(request.identity)
        time.sleep(0.2)
    assert control.observe(request).phase is Phase.FAILED, "the verdict is remembered"


def test_two_services_at_once(control: Controller, settings: Settings, make: Make, until: Until):
    one, two = make("one"), make("two")
    assert one.identity.service != two.identity.service
    threads = [threading.Thread(target=control.ensure, args=(request,)) for request in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for request in (one, two):
        assert until(request, Phase.READY).ready == 2
        control.remove(request)
    for request in (one, two):
        until(request, Phase.GONE)


def test_removal_while_it_is_created(
    control: Controller, settings: Settings, make: Make, until: Until, record: Callable[[], list[Path]]
):
    request = make()
    control.ensure(request)
    control.remove(request)
    until(request, Phase.GONE)
    assert_gone(settings, request, record)


def test_foreign_object_of_the_same_name_is_refused_and_kept(control: Controller, settings: Settings, make: Make):
    from kubernetes import client, config

    config.load_kube_config(str(settings.kubeconfig), context=settings.context)
    core = client.CoreV1Api()
    request = make()
    name = request.identity.service
    foreign = {
        "metadata": {"name": name, "labels": {"app": "other"}},
        "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
    }
    uid = core.create_namespaced_service("default", foreign).metadata.uid
    try:
        control.ensure(request)
        status = failed(control, request)
        assert status.reason == "NotOurs"
        assert name in status.message
        assert core.read_namespaced_service(name, "default").metadata.uid == uid
    finally:
        core.delete_namespaced_service(name, "default")


def test_a_strangers_object_that_has_taken_the_name_survives_the_removal(
    control: Controller, settings: Settings, make: Make, until: Until, record: Callable[[], list[Path]]
):
    from kubernetes import client, config

    config.load_kube_config(str(settings.kubeconfig), context=settings.context)
    core = client.CoreV1Api()
    request = make()
    control.ensure(request)
    until(request, Phase.READY)
    name = request.identity.service
    core.delete_namespaced_service(name, "default")
    body = {"metadata": {"name": name}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
    uid = core.create_namespaced_service("default", body).metadata.uid
    try:
        control.remove(request)
        until(request, Phase.GONE)
        assert_gone(settings, request, record)
        assert core.read_namespaced_service(name, "default").metadata.uid == uid
    finally:
        core.delete_namespaced_service(name, "default")


def test_lost_objects_are_made_again(
    control: Controller, settings: Settings, make: Make, until: Until, monkeypatch: pytest.MonkeyPatch
):
    from kubernetes import client, config

    from provisioner.control import again as module

    monkeypatch.setattr(module, "WATCH_LAG_SECONDS", 0.5)
    config.load_kube_config(str(settings.kubeconfig), context=settings.context)
    request = make()
    control.ensure(request)
    until(request, Phase.READY)
    sets = client.AppsV1Api()

    def uids() -> list[str]:
        name = f"metadata.name={request.identity.service}"
        return [item.metadata.uid for item in sets.list_namespaced_stateful_set("default", field_selector=name).items]

    (lost,) = uids()
    sets.delete_namespaced_stateful_set(request.identity.service, "default")

    def made_again() -> bool:
        control.observe(request)  # which finds it lost, sooner or later
        return bool(set(uids()) - {lost})

    wait_for(made_again, "it is made again", 120)
    until(request, Phase.READY)
    control.remove(request)
    until(request, Phase.GONE)
