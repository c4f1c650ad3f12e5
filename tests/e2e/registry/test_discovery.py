"""Agents found by a label on Services of a real API server."""

import asyncio
import secrets
from pathlib import Path

import grpc
import pytest
import yaml
from flyteidl.service import agent_pb2_grpc
from kubernetes import client, config

from provisioner.cli.main import main
from provisioner.errors import TransientError, UsageError
from provisioner.registry.discovery import PREFIX, ServiceDiscovery

from .conftest import CALL, get, until


@pytest.fixture
def core(sandbox):
    return client.CoreV1Api(config.new_client_from_config(str(sandbox.kubeconfig), context=sandbox.context))


@pytest.fixture
def namespace(core):
    name = f"registry-{secrets.token_hex(4)}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    yield name
    core.delete_namespace(name)


def service(name, endpoint, label="true", **annotations):
    notes = {f"{PREFIX}endpoint": endpoint} | {f"{PREFIX}{key}": value for key, value in annotations.items()}
    return client.V1Service(
        metadata=client.V1ObjectMeta(name=name, labels={f"{PREFIX}agent": label}, annotations=notes),
        spec=client.V1ServiceSpec(cluster_ip="None", ports=[client.V1ServicePort(name="grpc", port=8000)]),
    )


def test_a_labelled_service_is_served_and_an_unlabelled_one_no_longer(
    sandbox, core, namespace, fleet, tmp_path, monkeypatch
):
    old = fleet.old_style("old", "--type", "async:legacy")
    monkeypatch.setenv("PROVISIONER_KUBECONFIG", str(sandbox.kubeconfig))
    monkeypatch.setenv("PROVISIONER_CONTEXT", str(sandbox.context))
    empty = tmp_path / "agents.yaml"
    empty.write_text("agent-service: {pollInterval: 2s}")
    gateway = fleet.gateway(empty, "--discover")
    assert gateway.serves() == set()
    core.create_namespaced_service(namespace, service("agent", old.endpoint))
    until(lambda: gateway.serves() == {("legacy", 0)}, "the labelled agent")
    until(lambda: gateway.metric("agent_registry_discovery_up") == 1, "the last look was answered")
    with gateway.channel() as channel:
        assert (
            agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy"), timeout=CALL).resource.message == "old"
        )
    core.create_namespaced_service(namespace, service("broken", old.endpoint, insecure="perhaps"))
    until(lambda: "insecure must be true or false" in gateway.log.read_text(), "the wrong annotation is said")
    core.delete_namespaced_service("agent", namespace)
    until(lambda: gateway.serves() == set(), "the agent is gone")
    with gateway.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy"), timeout=CALL)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_the_list_shows_what_is_discovered(sandbox, core, namespace, fleet, monkeypatch, capfd):
    old = fleet.old_style("old", "--type", "async:legacy")
    monkeypatch.setenv("PROVISIONER_KUBECONFIG", str(sandbox.kubeconfig))
    monkeypatch.setenv("PROVISIONER_CONTEXT", str(sandbox.context))
    core.create_namespaced_service(namespace, service("agent", old.endpoint, label="yes"))
    from provisioner.settings import load

    load.cache_clear()
    try:
        words = ["agents", "--discover", "--discover-label", f"{PREFIX}agent=yes", "--discover-namespace", namespace]
        assert main(words) == 0
    finally:
        load.cache_clear()
    line = capfd.readouterr().out.splitlines()[1]
    assert f"{namespace}/agent" in line
    assert "legacy" in line


def test_it_says_when_the_api_server_refuses_or_is_away(sandbox, core, namespace, tmp_path):
    good = ServiceDiscovery(namespace=namespace, kubeconfig=sandbox.kubeconfig, context=sandbox.context)
    assert asyncio.run(good.find()) == ()
    document = yaml.safe_load(Path(sandbox.kubeconfig).read_text())
    away, stranger = tmp_path / "away", tmp_path / "stranger"
    away.write_text(yaml.safe_dump(document | {"clusters": [with_server(document["clusters"][0])]}))
    users = [{"name": user["name"], "user": {"token": "nobody's"}} for user in document["users"]]
    stranger.write_text(yaml.safe_dump(document | {"users": users}))
    with pytest.raises(TransientError, match="does not answer"):
        asyncio.run(ServiceDiscovery(kubeconfig=away, context=sandbox.context).find())
    with pytest.raises(TransientError, match="cannot list services in all namespaces: 401"):
        asyncio.run(ServiceDiscovery(kubeconfig=stranger, context=sandbox.context).find())


def with_server(cluster):
    return {"name": cluster["name"], "cluster": cluster["cluster"] | {"server": "https://127.0.0.1:1"}}


def test_without_a_cluster_it_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot reach a cluster for --discover"):
        ServiceDiscovery(kubeconfig=tmp_path / "missing")
