"""A connector for `dataservicetask` on flytekit's own service classes, with no cluster behind it.

Usage: python data_service.py PORT
"""

import asyncio
import sys
from dataclasses import dataclass

import grpc
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service.agent_pb2_grpc import (
    add_AgentMetadataServiceServicer_to_server,
    add_AsyncAgentServiceServicer_to_server,
)
from flytekit.extend.backend.base_connector import AsyncConnectorBase, ConnectorRegistry, Resource, ResourceMeta
from flytekit.extend.backend.connector_service import AsyncConnectorService, ConnectorMetadataService


@dataclass
class Service(ResourceMeta):
    name: str


class DataServices(AsyncConnectorBase):
    name = "Data Services"

    def __init__(self) -> None:
        super().__init__(task_type_name="dataservicetask", metadata_type=Service)

    def create(self, task_template, **kwargs) -> Service:
        return Service(name=str(task_template.custom["name"]))

    def get(self, resource_meta: Service, **kwargs) -> Resource:
        return Resource(phase=TaskExecution.SUCCEEDED, message="ready", outputs={"name": resource_meta.name})

    def delete(self, resource_meta: Service, **kwargs) -> None:
        pass


async def main(port: int) -> None:
    # What installed plugins have registered would be announced too.
    ConnectorRegistry._REGISTRY.clear()
    ConnectorRegistry._METADATA.clear()
    ConnectorRegistry.register(DataServices())
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_AsyncAgentServiceServicer_to_server(AsyncConnectorService(), server)
    add_AgentMetadataServiceServicer_to_server(ConnectorMetadataService(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
