"""The Flyte side: the connector, and the task that a workflow uses.

flytekit imports this package through its entry point group `flytekit.plugins`
whenever it is imported itself. All that happens then is that the connector is
registered; nothing starts, and no setting is read.
"""

from flytekit.extend.backend.base_connector import ConnectorRegistry

from provisioner.control.status import Endpoint
from provisioner.flyte.cleaning import CleanupConnector
from provisioner.flyte.cleanup import CleanupTask, attach, release
from provisioner.flyte.config import DataServiceConfig
from provisioner.flyte.connector import DataServiceConnector
from provisioner.flyte.scope import EndServicesTask, data_service, scoped_workflow
from provisioner.flyte.sensor import CleanupSensor
from provisioner.flyte.service import DataService
from provisioner.flyte.task import DataServiceTask
from provisioner.spec import (
    EnvFrom,
    ExecAction,
    HTTPGetAction,
    Port,
    Probe,
    ResourceRequirements,
    TCPSocketAction,
    Toleration,
)

__all__ = [
    "CleanupConnector",
    "CleanupSensor",
    "CleanupTask",
    "DataService",
    "DataServiceConfig",
    "DataServiceConnector",
    "DataServiceTask",
    "EndServicesTask",
    "Endpoint",
    "EnvFrom",
    "ExecAction",
    "HTTPGetAction",
    "Port",
    "Probe",
    "ResourceRequirements",
    "TCPSocketAction",
    "Toleration",
    "attach",
    "data_service",
    "release",
    "scoped_workflow",
]

# Where the community plugin is installed beside us, this one serves the task type.
ConnectorRegistry.register(DataServiceConnector(), override=True)
ConnectorRegistry.register(CleanupConnector(), override=True)
