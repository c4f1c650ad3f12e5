"""The names of the community plugin `flytekitplugins-k8sdataservice`, with its defects gone.

A workflow written for it changes one import:

    from provisioner.flyte.community import CleanupSensor, DataServiceConfig, DataServiceTask

The configuration is the plugin's own, field by field, and serializes to the
same document; the task's output is its `name: str`. Task templates that were
registered with the plugin itself run on our connector as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from flytekit import Resources

from provisioner.flyte import task
from provisioner.flyte.sensor import CleanupSensor

__all__ = ["CleanupSensor", "DataServiceConfig", "DataServiceTask"]


@dataclass
class DataServiceConfig:
    """The plugin's configuration.

    Attributes:
        Name: Readable part of the service's name.
        Requests: What each replica asks for.
        Limits: What each replica may use at most.
        Port: Port of each replica; 40000 when none is given.
        Image: Container image.
        Command: Replaces the image's entry point.
        Replicas: Number of replicas; 1 when none is given.
        ExistingReleaseName: Name of a service that exists already.
        Cluster: Accepted; the provisioner's own cluster is used.
    """

    Name: str | None = None
    Requests: Resources | None = None
    Limits: Resources | None = None
    Port: int | None = None
    Image: str | None = None
    Command: list[str] | None = None
    Replicas: int | None = None
    ExistingReleaseName: str | None = None
    Cluster: str | None = None

    def custom(self) -> dict[str, Any]:
        """The `custom` field of the task template, as the plugin writes it."""
        custom: dict[str, Any] = {
            "Name": self.Name,
            "Image": self.Image,
            "Command": self.Command,
            "Port": self.Port,
            "Replicas": self.Replicas,
            "ExistingReleaseName": self.ExistingReleaseName,
            "Cluster": self.Cluster,
        }
        for key, resources in (("Limits", self.Limits), ("Requests", self.Requests)):
            if resources is not None:
                custom[key] = asdict(resources)
        return custom


FIELDS = frozenset(field.name for field in fields(DataServiceConfig))


class DataServiceTask(task.DataServiceTask):
    """The plugin's task: its one output is the service's name."""

    OUTPUTS: ClassVar[Mapping[str, type]] = {"name": str}
