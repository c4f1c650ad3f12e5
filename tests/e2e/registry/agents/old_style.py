"""An agent from before task categories: plain type names, async and sync, every method; writes a journal.

Usage: python old_style.py PORT JOURNAL NAME [--type async:NAME ...] [--category async:NAME:VERSION ...]
       [--no-metadata] [--cert FILE --key FILE --client-ca FILE]

What a request asks for is in the task type's own inputs or the resource meta, so that a test says what
the agent does: `unavailable`, `fail`, `wait:PATH` (until the file exists), else nothing special.
"""

import argparse
import asyncio
import json
import os
from pathlib import Path

import grpc
from flyteidl.admin import agent_pb2
from flyteidl.core import execution_pb2
from flyteidl.service import agent_pb2_grpc


class Journal:
    """One JSON line per event, whole lines only, so that a kill loses at most the line being written."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **event: object) -> None:
        os.write(self._file, (json.dumps(event) + "\n").encode())


class Agent(
    agent_pb2_grpc.AsyncAgentServiceServicer,
    agent_pb2_grpc.SyncAgentServiceServicer,
    agent_pb2_grpc.AgentMetadataServiceServicer,
):
    def __init__(self, options: argparse.Namespace) -> None:
        self.name = options.name
        self.options = options
        self.journal = Journal(options.journal)

    async def _do(self, method: str, task_type: str, version: int, order: str, context) -> None:
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        left = context.time_remaining()
        self.journal.write(
            agent=self.name, method=method, type=task_type, version=version, order=order, metadata=metadata, left=left
        )
        try:
            if order == "unavailable":
                await context.abort(grpc.StatusCode.UNAVAILABLE, f"{self.name} is busy")
            if order == "fail":
                await context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    "no such luck",
                    (("x-reason", "luck"), ("grpc-status-details-bin", b"\x08\x09")),
                )
            if order.startswith("wait:"):
                while not Path(order[5:]).exists():  # noqa: ASYNC110, ASYNC240 - the test is another process
                    await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.journal.write(agent=self.name, method=method, type=task_type, cancelled=True)
            raise
        if method != "GetTaskLogs":  # its first message has gone out already
            await context.send_initial_metadata((("x-initial", self.name),))
        context.set_trailing_metadata((("x-trailing", method), ("x-blob-bin", b"\x00\xff")))

    async def CreateTask(self, request, context):
        template = request.template
        await self._do("CreateTask", template.type, template.task_type_version, request.output_prefix, context)
        return agent_pb2.CreateTaskResponse(resource_meta=b"task")

    async def GetTask(self, request, context):
        category = request.task_category
        name, version = (category.name, category.version) if category.name else (request.task_type, 0)
        await self._do("GetTask", name, version, request.resource_meta.decode(), context)
        resource = agent_pb2.Resource(phase=execution_pb2.TaskExecution.RUNNING, message=self.name)
        return agent_pb2.GetTaskResponse(resource=resource)

    async def DeleteTask(self, request, context):
        category = request.task_category
        name, version = (category.name, category.version) if category.name else (request.task_type, 0)
        await self._do("DeleteTask", name, version, request.resource_meta.decode(), context)
        return agent_pb2.DeleteTaskResponse()

    async def GetTaskMetrics(self, request, context):
        await self._do("GetTaskMetrics", request.task_category.name, 0, request.resource_meta.decode(), context)
        return agent_pb2.GetTaskMetricsResponse()

    async def GetTaskLogs(self, request, context):
        order = request.resource_meta.decode()
        yield agent_pb2.GetTaskLogsResponse(header=agent_pb2.GetTaskLogsResponseHeader(token="first"))
        await self._do("GetTaskLogs", request.task_category.name, 0, order, context)
        for number in range(int(request.lines)):
            yield agent_pb2.GetTaskLogsResponse(body=agent_pb2.GetTaskLogsResponseBody(results=[f"line {number}"]))

    async def ExecuteTaskSync(self, request_iterator, context):
        first = await anext(aiter(request_iterator))
        template = first.header.template
        await self._do(
            "ExecuteTaskSync", template.type, template.task_type_version, first.header.output_prefix, context
        )
        resource = agent_pb2.Resource(phase=execution_pb2.TaskExecution.SUCCEEDED, message=self.name)
        yield agent_pb2.ExecuteTaskSyncResponse(header=agent_pb2.ExecuteTaskSyncResponseHeader(resource=resource))
        async for request in request_iterator:  # each input comes straight back, while more are being sent
            yield agent_pb2.ExecuteTaskSyncResponse(outputs=request.inputs)

    async def ListAgents(self, request, context):
        if self.options.no_metadata:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not implemented!")
        agents = {}
        for mode in ("async", "sync"):
            names = [item.split(":")[1] for item in self.options.type if item.startswith(f"{mode}:")]
            categories = [item.split(":")[1:] for item in self.options.category if item.startswith(f"{mode}:")]
            if names or categories:
                agents[mode] = agent_pb2.Agent(
                    name=f"{self.name} {mode}",
                    is_sync=mode == "sync",
                    supported_task_types=names,
                    supported_task_categories=[
                        agent_pb2.TaskCategory(name=name, version=int(version)) for name, version in categories
                    ],
                )
        return agent_pb2.ListAgentsResponse(agents=agents.values())


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("journal", type=Path)
    parser.add_argument("name")
    parser.add_argument("--type", action="append", default=[])
    parser.add_argument("--category", action="append", default=[])
    parser.add_argument("--no-metadata", action="store_true")
    parser.add_argument("--cert", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--client-ca", type=Path)
    options = parser.parse_args()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    agent = Agent(options)
    agent_pb2_grpc.add_AsyncAgentServiceServicer_to_server(agent, server)
    agent_pb2_grpc.add_SyncAgentServiceServicer_to_server(agent, server)
    agent_pb2_grpc.add_AgentMetadataServiceServicer_to_server(agent, server)
    if options.cert:
        ca = options.client_ca.read_bytes() if options.client_ca else None
        pair = (options.key.read_bytes(), options.cert.read_bytes())
        credentials = grpc.ssl_server_credentials([pair], ca, ca is not None)
        server.add_secure_port(f"127.0.0.1:{options.port}", credentials)
    else:
        server.add_insecure_port(f"127.0.0.1:{options.port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
