"""Certificates on both sides of the gateway: of callers and of agents, checked, asked for, renewed."""

import ssl

import grpc
import pytest
from authority import Authority
from flyteidl.admin import agent_pb2
from flyteidl.service import agent_pb2_grpc

from .conftest import CALL, get, until, write_config


def call(endpoint, credentials):
    with grpc.secure_channel(endpoint, credentials) as channel:
        return agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy"), timeout=CALL).resource.message


def credentials(ca, pair=None):
    cert, key = pair or (None, None)
    return grpc.ssl_channel_credentials(ca.read_bytes(), key and key.read_bytes(), cert and cert.read_bytes())


def listed(endpoint, creds):
    with grpc.secure_channel(endpoint, creds) as channel:
        stub = agent_pb2_grpc.AgentMetadataServiceStub(channel)
        return stub.ListAgents(agent_pb2.ListAgentsRequest(), timeout=CALL).agents


def test_both_sides_prove_who_they_are(fleet, tmp_path):
    inside, outside = Authority(tmp_path, "inside"), Authority(tmp_path, "outside")
    cert, key = inside.issue("agent")
    agent = fleet.old_style(
        "old",
        "--type",
        "async:legacy",
        "--cert",
        str(cert),
        "--key",
        str(key),
        "--client-ca",
        str(inside.ca),
        ready=False,
    )
    config = write_config(
        tmp_path / "agents.yaml",
        {
            "pollInterval": "2s",
            "agents": {"old": {"endpoint": agent.endpoint, "insecure": False, "defaultTimeout": "60s"}},
        },
    )
    own, own_key = outside.issue("gateway")
    client, client_key = inside.issue("gateway-as-client")
    gateway = fleet.gateway(
        config,
        *("--tls-cert", str(own), "--tls-key", str(own_key), "--client-ca", str(outside.ca)),
        *("--agent-ca", str(inside.ca), "--agent-cert", str(client), "--agent-key", str(client_key)),
        ready=False,
    )
    caller = credentials(outside.ca, outside.issue("caller"))
    until(lambda: listed(gateway.endpoint, caller), "the agent is served")
    assert call(gateway.endpoint, caller) == "old"
    # Without a certificate, with one of somebody else, and without TLS: nobody gets in.
    for stranger in (credentials(outside.ca), credentials(outside.ca, inside.issue("stranger"))):
        with pytest.raises(grpc.RpcError) as caught:
            call(gateway.endpoint, stranger)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with gateway.channel() as channel, pytest.raises(grpc.RpcError):
        agent_pb2_grpc.AsyncAgentServiceStub(channel).GetTask(get("legacy"), timeout=CALL)
    assert len(agent.events()) == 1


def test_an_agent_with_a_certificate_of_somebody_else_is_not_believed(fleet, tmp_path):
    good, bad = Authority(tmp_path, "good"), Authority(tmp_path, "bad")
    cert, key = bad.issue("agent")
    agent = fleet.old_style("old", "--type", "async:legacy", "--cert", str(cert), "--key", str(key), ready=False)
    # Per agent: its CA, and the name that its certificate must have.
    block = {
        "pollInterval": "2s",
        "agents": {"old": {"endpoint": agent.endpoint, "caFile": str(good.ca), "serverName": "agent.test"}},
    }
    config = write_config(tmp_path / "agents.yaml", block)
    gateway = fleet.gateway(config)
    until(lambda: "TLS handshake failed" in gateway.log.read_text(), "the handshake fails, and the log says so")
    assert gateway.serves() == set()
    block["agents"]["old"]["caFile"] = str(bad.ca)
    write_config(config, block)
    until(lambda: gateway.serves() == {("legacy", 0)}, "the right CA is used")
    block["agents"]["old"]["serverName"] = "another.test"
    write_config(config, block)
    until(lambda: gateway.metric("agent_registry_agent_up", agent="old") == 0, "the name in the certificate counts")


def test_renewed_certificates_are_used_without_a_restart(fleet, tmp_path):
    authority = Authority(tmp_path, "ca")
    agent_cert, agent_key = authority.issue("agent")
    agent = fleet.old_style(
        "old",
        "--type",
        "async:legacy",
        "--cert",
        str(agent_cert),
        "--key",
        str(agent_key),
        "--client-ca",
        str(authority.ca),
        ready=False,
    )
    config = write_config(
        tmp_path / "agents.yaml", {"pollInterval": "2s", "agents": {"old": {"endpoint": agent.endpoint}}}
    )
    cert, key = authority.issue("gateway")
    stranger = Authority(tmp_path, "stranger")
    client_cert, client_key = stranger.issue("client")  # not yet one that the agent takes
    gateway = fleet.gateway(
        config,
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(key),
        "--agent-ca",
        str(authority.ca),
        "--agent-cert",
        str(client_cert),
        "--agent-key",
        str(client_key),
        ready=False,
    )
    caller = credentials(authority.ca)
    until(lambda: listed(gateway.endpoint, caller) is not None, "the gateway serves")
    assert not listed(gateway.endpoint, caller)

    good_cert, good_key = authority.issue("client")
    good_key.replace(client_key)
    good_cert.replace(client_cert)
    until(lambda: listed(gateway.endpoint, caller), "the renewed client certificate is shown to the agent")

    before = ssl.get_server_certificate(("127.0.0.1", gateway.port))
    authority.issue("gateway")
    until(lambda: ssl.get_server_certificate(("127.0.0.1", gateway.port)) != before, "the renewed certificate is shown")
    key.write_text("broken")
    until(
        lambda: listed(gateway.endpoint, caller) and "certificate not renewed" in gateway.log.read_text(), "it goes on"
    )
    assert call(gateway.endpoint, caller) == "old"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tls-cert", "{junk}"], "--tls-cert and --tls-key must be given together"),
        (["--client-ca", "{junk}"], "--client-ca only with them"),
        (["--tls-cert", "{junk}", "--tls-key", "{junk}"], "are not a certificate and its unencrypted key"),
        (["--agent-ca", "{junk}"], "holds no certificates in PEM form"),
        (["--agent-ca", "/nowhere.pem"], "cannot read the certificate file /nowhere.pem"),
        (["--agent-cert", "{junk}"], "--agent-cert and --agent-key must be given together"),
    ],
)
def test_a_wrong_file_is_said_at_the_start(tmp_path, capfd, monkeypatch, arguments, said):
    monkeypatch.setattr("provisioner.logs.configure", lambda _settings: None)  # this process is not the gateway's
    from provisioner.cli.main import main

    junk = tmp_path / "junk.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\njunk\n-----END CERTIFICATE-----\n")
    config = write_config(tmp_path / "agents.yaml", {"defaultAgent": {"endpoint": "127.0.0.1:1"}})
    words = ["gateway", "--config", str(config), "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0"]
    assert main([*words, *(item.format(junk=junk) for item in arguments)]) != 0
    assert said in capfd.readouterr().err
