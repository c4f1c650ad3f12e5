"""Objects that are on their way out, or are taken away, while a service is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fault_service import CHANGE, Service
from fault_world import World
from waiting import wait_for

from provisioner.cluster.api import PODS, STATEFULSETS, Call

# Of somebody's controller that takes its time.
FINALIZER = "tests.example/slow"


@pytest.fixture
def service(world: World) -> Service:
    made = world.service()
    made.create()
    made.converge()
    return made


def statefulset(world: World, verb: str, service: Service, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    call = Call(verb, STATEFULSETS, world.namespace, service.identity.service)
    return world.client.transport.json(call, body=body)


def test_what_is_on_its_way_out_is_waited_for_before_it_is_made_again(
    service: Service, world: World, record_property: Callable[[str, Any], None]
) -> None:
    record_property("fault", "the old StatefulSet terminates during create")
    statefulset(world, "patch", service, {"metadata": {"finalizers": [FINALIZER]}})
    old = statefulset(world, "get", service)["metadata"]["uid"]
    statefulset(world, "delete", service)
    # As when its record was lost: it is created, not updated.
    world.engine.stack(service.stack).forget()
    service.create(**CHANGE)
    wait_for(
        lambda: f"StatefulSet {service.identity.service} of an earlier service still there" in service.poll().message,
        "the status names what is waited for",
        90,
    )
    statefulset(world, "patch", service, {"metadata": {"finalizers": None}})
    service.converge()
    assert statefulset(world, "get", service)["metadata"]["uid"] != old
    record_property("polls", service.polls)
    service.vanish()


def test_a_replica_that_is_evicted_comes_back(
    service: Service, world: World, record_property: Callable[[str, Any], None]
) -> None:
    record_property("fault", "a replica is evicted")
    name = f"{service.identity.service}-0"

    def pods() -> set[str]:
        listed = world.client.transport.json(Call("list", PODS, world.namespace))
        return {item["metadata"]["uid"] for item in listed["items"] if item["metadata"]["name"] == name}

    old = pods()
    assert len(old) == 1
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    world.client.transport.json(Call("create", PODS, world.namespace, name, "eviction"), body=eviction)
    wait_for(lambda: pods() - old, "another pod takes its place")
    service.converge()
    record_property("polls", service.polls)
    service.vanish()
