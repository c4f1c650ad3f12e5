"""Ask one agent what it serves, and read the answer with suspicion.

Names come from other people's programs and end in tables and metrics: what is
not printable is left out. Of the two fields that an answer has, the newer
categories say a version; the older plain names mean version 0, as in the
propeller, and count only where the same connector gives no category of that
name (flytekit fills in both).
"""

from __future__ import annotations

from collections.abc import Iterable

import grpc
import grpc.aio
from flyteidl.admin import agent_pb2

from provisioner.errors import PermanentError
from provisioner.registry.calls import HOP_HEADER, Metadata
from provisioner.registry.channels import ChannelPool
from provisioner.registry.config import Deployment
from provisioner.registry.durations import format_duration
from provisioner.registry.table import Announced, Mode, Observation
from provisioner.registry.wire import METADATA_SERVICE

LIST_AGENTS = f"/{METADATA_SERVICE}/ListAgents"
LOOP_TRAILER = "x-agent-gateway-loop"
"""Says in an answer that the call came back to the gateway that sent it."""

_LONGEST_NAME = 255


def is_clean(name: str) -> bool:
    """Whether a name may be used: not empty, printable, not absurdly long."""
    return bool(name.strip()) and name.isprintable() and len(name) <= _LONGEST_NAME


def announced_of(agents: Iterable[agent_pb2.Agent]) -> tuple[Announced, ...]:
    """What an answer to ListAgents says.

    Args:
        agents: The `Agent` messages of the answer.
    """
    found = []
    for agent in agents:
        categories = [(item.name, item.version) for item in agent.supported_task_categories if is_clean(item.name)]
        versioned = {name for name, _ in categories}
        plain = [(name, 0) for name in agent.supported_task_types if is_clean(name) and name not in versioned]
        name = agent.name if is_clean(agent.name) else "(unnamed)"
        mode = Mode.SYNC if agent.is_sync else Mode.ASYNC
        found.append(Announced(name, mode, tuple(dict.fromkeys(categories + plain))))
    return tuple(found)


def reason_of(error: grpc.aio.AioRpcError, limit: float) -> str:
    """An agent's failure in a few words, for a person.

    Args:
        error: What the call ended with.
        limit: Seconds that it was given.
    """
    details = " ".join((error.details() or "").split())
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {format_duration(limit)}"
    if "Connection refused" in details:
        return "connection refused"
    if "DNS" in details or "resolving" in details or "name resol" in details.lower():
        return "the name does not resolve"
    if "SSL" in details or "handshake" in details.lower() or "certificate" in details.lower():
        return f"TLS handshake failed: {details[-120:]}"
    shown = "".join(character if character.isprintable() else "?" for character in details)
    return f"{error.code().name}: {shown[:200]}" if shown else error.code().name


async def ask(
    deployment: Deployment, pool: ChannelPool, before: Observation, *, limit: float, now: float, metadata: Metadata
) -> Observation:
    """Ask an agent what it serves.

    Args:
        deployment: The agent.
        pool: The channels.
        before: What was known of it.
        limit: Seconds that it has.
        now: The time of the round, in seconds on the watch's clock.
        metadata: Sent along.

    Returns:
        What is known now; with what it announced before when it does not answer.
    """
    try:
        with pool.lease(deployment) as channel:
            call = channel.unary_unary(
                LIST_AGENTS,
                request_serializer=agent_pb2.ListAgentsRequest.SerializeToString,
                response_deserializer=agent_pb2.ListAgentsResponse.FromString,
            )
            running = call(agent_pb2.ListAgentsRequest(), timeout=limit, metadata=metadata)
            answer = await running
            names = [value for key, value in await running.trailing_metadata() or () if key == HOP_HEADER]
        gateway = names[-1] if names and isinstance(names[-1], str) and is_clean(names[-1]) else ""
        return Observation(announced_of(answer.agents), answered_at=now, gateway=gateway)
    except PermanentError as error:
        problem = str(error)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            # An agent from before the metadata service: it is there, and explicit entries lead to it.
            return Observation(answered_at=now)
        if any(key == LOOP_TRAILER for key, _ in error.trailing_metadata() or ()):
            return Observation(error="is this gateway itself", itself=True)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            pool.renew(deployment)
        problem = reason_of(error, limit)
    return Observation(before.announced, before.answered_at, problem)
