"""What a data service is: the specification, how it is read, and what is wrong with it.

No I/O here: a specification is a value, equal specifications have equal
canonical JSON and so equal hashes, on every machine and in every version.
"""

from provisioner.spec.container import (
    EnvFrom,
    EnvSecret,
    ExecAction,
    HTTPGetAction,
    Port,
    Probe,
    ResourceRequirements,
    TCPSocketAction,
)
from provisioner.spec.duration import Duration, format_duration, parse_duration
from provisioner.spec.load import ServiceConfig, parse_config, parse_spec
from provisioner.spec.model import DataServiceSpec
from provisioner.spec.quantity import parse_quantity
from provisioner.spec.scheduling import Toleration

__all__ = [
    "DataServiceSpec",
    "Duration",
    "EnvFrom",
    "EnvSecret",
    "ExecAction",
    "HTTPGetAction",
    "Port",
    "Probe",
    "ResourceRequirements",
    "ServiceConfig",
    "TCPSocketAction",
    "Toleration",
    "format_duration",
    "parse_config",
    "parse_duration",
    "parse_quantity",
    "parse_spec",
]
