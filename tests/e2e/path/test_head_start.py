"""What is made of a service before its engine has its turn, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shim import Shim
from waiting import wait_for

from provisioner.cluster import ClusterClient
from provisioner.cluster.live import LiveObjects
from provisioner.control import operations
from provisioner.control.controller import Controller
from provisioner.control.recorded import recorded
from provisioner.control.request import ServiceRequest
from provisioner.control.status import Phase, Status
from provisioner.engine import Component, Engine
from provisioner.identity import FIELD_MANAGER, Origin
from provisioner.resources.component import COMPONENT_TYPE, component_inputs
from provisioner.sealing import Sealer
from provisioner.settings import Settings

Make = Callable[..., ServiceRequest]
Until = Callable[..., Status]


@pytest.fixture
def control(shim: Shim, settings: Settings) -> Iterator[Controller]:
    """A controller with one worker, in a backend that is new; its processes are those of the `shim`."""
    made = Controller.from_settings(settings.model_copy(update={"workers": 1}))
    made.start()
    yield made
    assert made.stop(60), "an operation did not end"


class Seen:
    """A service as the API server shows it."""

    def __init__(self, settings: Settings, request: ServiceRequest) -> None:
        self._live = LiveObjects(ClusterClient(settings).transport)
        self._identity = request.identity

    def object(self, kind: str) -> Any:
        found = self._live.get(kind, self._identity.namespace, self._identity.service)
        assert found is not None, f"there is no {kind}"
        return found

    def ready(self) -> int:
        found = self._live.statefulset(self._identity)
        return found.ready_replicas if found is not None else 0

    def pods(self) -> dict[str, str]:
        return {pod.name: pod.uid for pod in self._live.pods(self._identity)}

    def managers(self, kind: str) -> set[str]:
        """Who manages fields of what was asked for; the status is the controllers'."""
        fields = self.object(kind)["metadata"]["managedFields"]
        return {entry["manager"] for entry in fields if entry.get("subresource") != "status"}

    def env(self) -> dict[str, str]:
        container = self.object("StatefulSet")["spec"]["template"]["spec"]["containers"][0]
        return {item["name"]: item["value"] for item in container["env"] if len(item["name"]) == 1}


def occupied(control: Controller, shim: Shim, make: Make) -> ServiceRequest:
    """A service whose engine is held up, and with it the only worker."""
    other, before = make("other"), shim.held()
    control.ensure(other)
    wait_for(lambda: shim.held() > before, "an engine was started")
    return other


def test_replicas_get_ready_before_their_engine_has_recorded_them(
    control: Controller, shim: Shim, settings: Settings, make: Make, until: Until
):
    request = make(env={"A": {"secret": "hunter2"}}, disruptionBudget={"maxUnavailable": 1})
    request = replace(request, spec=Sealer.of(settings).sealed(request.spec, request.stack))
    state, seen = Engine(settings).state, Seen(settings, request)
    with shim.holding():
        control.ensure(request)
        wait_for(lambda: control.observe(request).ready == 2, "both replicas are ready")
        status = control.observe(request)
        assert (status.phase, status.endpoints) == (Phase.APPLYING, ()), "it is not recorded yet"
        record = recorded(state.checkpoint(request.stack))
        assert record is not None
        assert (record.identity, record.spec, record.applied) == (request.identity, request.spec, False)
        kinds = ("Service", "Secret", "StatefulSet", "PodDisruptionBudget")
        begun = {kind: seen.object(kind)["metadata"]["uid"] for kind in kinds}
        pods = seen.pods()
    until(request, Phase.READY)
    assert {kind: seen.object(kind)["metadata"]["uid"] for kind in kinds} == begun
    assert seen.pods() == pods
    assert seen.object("StatefulSet")["metadata"]["generation"] == 1, "the engine changed nothing of it"
    assert {kind: seen.managers(kind) for kind in kinds} == {kind: {FIELD_MANAGER} for kind in kinds}
    checkpoint = state.checkpoint(request.stack)
    assert checkpoint is not None
    assert {item.type.rpartition(":")[2] for item in checkpoint.objects} == set(kinds)
    assert shim.take() == ["whoami", "up"]
    control.remove(request)
    until(request, Phase.GONE)
    assert ClusterClient(settings).remaining(request.identity) == []


def test_what_is_broken_is_told_before_its_engine_starts(
    control: Controller, shim: Shim, settings: Settings, make: Make, until: Until
):
    request = make(command=["/bin/busybox", "sh", "-c", "echo no shard for me; exit 7"])
    with shim.holding():
        other = occupied(control, shim, make)
        control.ensure(request)
        failed = wait_for(lambda: (found := control.observe(request)).phase is Phase.FAILED and found, "it fails", 120)
        assert failed.reason == "CrashLoop"
        assert "no shard for me" in failed.message
    client = ClusterClient(settings)
    wait_for(lambda: control.settled(request) and not client.remaining(request.identity), "its removal")
    assert "destroy" not in shim.take()
    until(other, Phase.READY)
    control.remove(other)
    until(other, Phase.GONE)


def test_what_is_removed_before_its_engine_starts_needs_none_and_leaves_nothing(
    control: Controller, shim: Shim, settings: Settings, make: Make, until: Until, record: Callable[[], list[Path]]
):
    request = make()
    with shim.holding():
        other = occupied(control, shim, make)
        control.ensure(request)
        wait_for(lambda: Seen(settings, request).ready() == 2, "both replicas are ready")
        assert control.observe(request).phase is Phase.QUEUED
        control.remove(request)
    until(request, Phase.GONE)
    until(other, Phase.READY)
    assert ClusterClient(settings).remaining(request.identity) == []
    assert not [path for path in record() if request.stack in str(path)]
    assert shim.take() == ["whoami", "up"], "the other's"
    control.remove(other)
    until(other, Phase.GONE)


def test_what_was_begun_in_another_cluster_is_not_forgotten(control: Controller, settings: Settings, make: Make):
    request, engine = make(), Engine(settings)
    inputs = component_inputs(request.identity, request.spec, Origin(cluster="another"), shared=False)
    with engine.stack(request.stack).begun(Component(COMPONENT_TYPE, request.identity.service, inputs)) as held:
        assert held
    control.remove(request)
    refused = wait_for(lambda: (found := control.observe(request)).reason and found, "the removal has failed")
    assert (refused.phase, refused.reason) == (Phase.REMOVING, "OtherCluster")
    assert engine.stack(request.stack).exists()
    engine.stack(request.stack).forget()


def test_what_is_changed_before_its_engine_starts_comes_to_what_was_wanted_last(
    control: Controller, shim: Shim, settings: Settings, make: Make, until: Until
):
    request, changed = make(env={"A": "1", "B": "2"}), make(env={"A": "3"})
    seen = Seen(settings, request)
    with shim.holding():
        other = occupied(control, shim, make)
        control.ensure(request)
        wait_for(lambda: seen.ready() == 2, "both replicas are ready")
        assert seen.env() == {"A": "1", "B": "2"}
        control.ensure(changed)
    until(changed, Phase.READY)
    assert seen.env() == {"A": "3"}
    assert seen.managers("StatefulSet") == {FIELD_MANAGER}
    for service in (changed, other):
        control.remove(service)
        until(service, Phase.GONE)


def test_what_cannot_be_changed_in_place_is_refused_before_its_engine_starts_and_made_anew_if_allowed(
    control: Controller, shim: Shim, settings: Settings, make: Make, until: Until
):
    request, changed = make(), make(podManagementPolicy="OrderedReady")
    # One that no execution owns stays when a change of it is refused.
    nobodys = replace(request.identity, owner="")
    request, changed = replace(request, identity=nobodys), replace(changed, identity=nobodys)
    seen = Seen(settings, request)
    with shim.holding():
        other = occupied(control, shim, make)
        control.ensure(request)
        wait_for(lambda: seen.ready() == 2, "both replicas are ready")
        begun = seen.object("StatefulSet")["metadata"]["uid"]
        control.ensure(changed)
    refused = wait_for(lambda: (found := control.observe(changed)).phase is Phase.FAILED and found, "it is refused")
    assert refused.reason == "ReplacementNeeded"
    assert seen.object("StatefulSet")["metadata"]["uid"] == begun
    allowed = replace(changed, replace=True)
    control.ensure(allowed)
    until(allowed, Phase.READY)
    made = seen.object("StatefulSet")
    assert made["metadata"]["uid"] != begun
    assert made["spec"]["podManagementPolicy"] == "OrderedReady"
    for service in (allowed, other):
        control.remove(service)
        until(service, Phase.GONE)


def test_a_service_keeps_the_field_managers_that_the_engine_made_up_for_it(
    control: Controller, settings: Settings, make: Make, until: Until, monkeypatch: pytest.MonkeyPatch
):
    request, changed = make(env={"A": "1", "B": "2"}), make(env={"A": "3"})
    with monkeypatch.context() as earlier:
        # As before there was one for all; nobody can apply without a name, so there is no head start.
        earlier.setattr(operations, "FIELD_MANAGER", "")
        control.ensure(request)
        until(request, Phase.READY)
    seen = Seen(settings, request)
    (before,) = seen.managers("StatefulSet")
    assert before.startswith("pulumi-kubernetes-")
    control.ensure(changed)
    until(changed, Phase.READY)
    assert seen.managers("StatefulSet") == {before}
    assert seen.env() == {"A": "3"}
    control.remove(changed)
    until(changed, Phase.GONE)
