"""What becomes of a service when others change it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.spec.base import Model

IgnoredField = Literal["replicas", "image", "resources"]


class Drift(Model):
    """What is done about changes that others make to the service's objects."""

    policy: Literal["correct", "report"] = Field(
        default="report", description="put them right with the next apply or look, or only show them"
    )
    ignore: tuple[IgnoredField, ...] = Field(
        default=(),
        description="fields that belong to somebody else once the service exists, such as replicas to an autoscaler; "
        "updates leave them alone too",
    )
