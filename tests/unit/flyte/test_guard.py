"""Who may call: over real gRPC, with real certificates and tokens."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from authority import Authority
from flyteidl.admin.agent_pb2 import GetTaskLogsRequest, ListAgentsRequest, TaskCategory
from flyteidl.service.agent_pb2_grpc import AgentMetadataServiceStub, AsyncAgentServiceStub
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from provisioner.errors import PermanentError, UsageError
from provisioner.flyte import guard
from provisioner.flyte.runtime import Runtime
from provisioner.flyte.server import Server
from provisioner.settings import Settings

TOKEN, NEW_TOKEN = "0123456789abcdef-old", "0123456789abcdef-new"


@asynccontextmanager
async def served(runtime: Runtime, **given: object) -> AsyncIterator[str]:
    """A server with these settings; gives its address."""
    server = Server(Settings(host="127.0.0.1", port=0, metrics_port=0, **given), runtime)
    addresses = await server.start()
    running = asyncio.create_task(server.run())
    try:
        yield f"127.0.0.1:{addresses.port}"
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def list_agents(channel: grpc.aio.Channel, token: str | None = None) -> int:
    metadata = [("authorization", f"Bearer {token}")] if token is not None else None
    answer = await AgentMetadataServiceStub(channel).ListAgents(ListAgentsRequest(), metadata=metadata, timeout=60)
    return len(answer.agents)


async def code_of(call) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


def secure(address: str, ca: Path, pair: tuple[Path, Path] | None = None) -> grpc.aio.Channel:
    cert, key = pair or (None, None)
    own = grpc.ssl_channel_credentials(ca.read_bytes(), key and key.read_bytes(), cert and cert.read_bytes())
    return grpc.aio.secure_channel(address, own)


async def test_tls_and_nothing_else(runtime, tmp_path) -> None:
    authority = Authority(tmp_path, "inside")
    cert, key = authority.issue("server")
    async with served(runtime, tls_cert=cert, tls_key=key) as address:
        async with secure(address, authority.ca) as channel:
            assert await list_agents(channel)
        async with secure(address, Authority(tmp_path, "other").ca) as channel:
            assert await code_of(list_agents(channel)) is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(address) as channel:
            assert await code_of(list_agents(channel)) is grpc.StatusCode.UNAVAILABLE


async def test_callers_are_asked_for_a_certificate(runtime, tmp_path) -> None:
    authority, stranger = Authority(tmp_path, "inside"), Authority(tmp_path, "stranger")
    cert, key = authority.issue("server")
    async with served(runtime, tls_cert=cert, tls_key=key, tls_client_ca=authority.ca) as address:
        async with secure(address, authority.ca, authority.issue("propeller")) as channel:
            assert await list_agents(channel)
        for pair in (None, stranger.issue("propeller")):
            async with secure(address, authority.ca, pair) as channel:
                assert await code_of(list_agents(channel)) is grpc.StatusCode.UNAVAILABLE


async def test_a_token_is_wanted_for_all_but_health(runtime, tmp_path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    async with served(runtime, token_file=tokens) as address, grpc.aio.insecure_channel(address) as channel:
        assert await list_agents(channel, TOKEN)
        for wrong in (None, "", NEW_TOKEN, TOKEN[:-1]):
            assert await code_of(list_agents(channel, wrong)) is grpc.StatusCode.UNAUTHENTICATED
        await HealthStub(channel).Check(HealthCheckRequest(), timeout=60)
        # A stream is refused as well, before anything is done.
        logs = AsyncAgentServiceStub(channel).GetTaskLogs(
            GetTaskLogsRequest(task_category=TaskCategory(name="dataservicetask")), timeout=60
        )
        assert await code_of(anext(aiter(logs))) is grpc.StatusCode.UNAUTHENTICATED
        # A new one is given out before the old one is taken away.
        tokens.write_text(f"{TOKEN}\n{NEW_TOKEN}\n")
        assert await list_agents(channel, TOKEN)
        assert await list_agents(channel, NEW_TOKEN)
        tokens.write_text(f"{NEW_TOKEN} \n")
        assert await code_of(list_agents(channel, TOKEN)) is grpc.StatusCode.UNAUTHENTICATED
        tokens.write_text("short")
        assert await list_agents(channel, NEW_TOKEN)


async def test_it_tells_its_services_by_reflection(runtime) -> None:
    async with served(runtime) as address, grpc.aio.insecure_channel(address) as channel:
        call = ServerReflectionStub(channel).ServerReflectionInfo(iter([ServerReflectionRequest(list_services="")]))
        names = {item.name async for answer in call for item in answer.list_services_response.service}
    assert {"flyteidl.service.AsyncAgentService", "grpc.health.v1.Health"} <= names


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_this_machine_plain_text_needs_no_choice(host: str) -> None:
    assert guard.credentials(Settings(host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "agent.example"])  # noqa: S104
def test_where_others_reach_it_plain_text_is_a_choice(host: str) -> None:
    with pytest.raises(UsageError, match="could create and delete services") as caught:
        guard.credentials(Settings(host=host))
    assert "--plaintext" in caught.value.hint
    assert guard.credentials(Settings(host=host, plaintext=True)) is None


@pytest.mark.parametrize(
    "given",
    [{"tls_cert": "a"}, {"tls_key": "a"}, {"tls_client_ca": "a"}, {"tls_cert": "a", "tls_key": "b", "plaintext": True}],
)
def test_half_of_it_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        guard.credentials(Settings(host="127.0.0.1", **given))


@pytest.mark.parametrize("content", ["", "short", f"{TOKEN}\nshort"])
def test_a_file_without_a_good_token_is_refused(tmp_path, content: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(content)
    with pytest.raises(PermanentError, match="16 characters"):
        guard.TokenGuard(file)
    with pytest.raises(PermanentError, match="cannot read"):
        guard.TokenGuard(tmp_path / "missing")
