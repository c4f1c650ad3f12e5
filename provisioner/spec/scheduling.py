"""Where replicas run: tolerations, affinity and spread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from provisioner.spec.base import WHOLE, Broken, LabelKey, LabelValue, Model


class Toleration(Model):
    """Lets the pods run on nodes with a matching taint."""

    key: LabelKey | None = Field(default=None, description="taint's key; none matches all with operator Exists")
    operator: Literal["Exists", "Equal"] = Field(default="Equal", description="how the value is compared")
    value: LabelValue = Field(default="", description="taint's value")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="taint's effect; none matches all"
    )

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:
        """Key, operator and value fit together."""
        if self.operator == "Exists" and self.value:
            yield Broken(("value",), "left out with operator Exists")
        if self.key is None and self.operator != "Exists" and not wrong:
            yield Broken(("operator",), "Exists when there is no key")


class Requirement(Model):
    """One condition on labels."""

    key: LabelKey = Field(description="label's key")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(description="how it is compared")
    values: tuple[LabelValue, ...] = Field(default=(), description="values for In, NotIn, Gt and Lt")

    def rules(self, wrong: frozenset[str] = frozenset()) -> Iterator[Broken]:
        """Values fit the operator."""
        if "values" in wrong:
            return
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            yield Broken(("values",), f"left out with operator {self.operator}")
        if self.operator in ("In", "NotIn") and not self.values:
            yield Broken(("values",), f"at least one with operator {self.operator}")
        if self.operator in ("Gt", "Lt") and not (len(self.values) == 1 and self.values[0].lstrip("-").isdecimal()):
            yield Broken(("values",), f"exactly one whole number with operator {self.operator}")


class NodeTerm(Model):
    """Conditions on a node, all of which must hold."""

    match_expressions: tuple[Requirement, ...] = Field(min_length=1, description="conditions on the node's labels")


class PreferredNodeTerm(Model):
    """A wish for nodes, weighed against others."""

    weight: Annotated[int, Field(ge=1, le=100), WHOLE] = Field(description="1 to 100, higher counts more")
    preference: NodeTerm = Field(description="conditions on the node")


class Affinity(Model):
    """Which nodes, and which neighbours, the replicas need or prefer."""

    node_required: tuple[NodeTerm, ...] = Field(default=(), description="a node must fulfil one of these terms")
    node_preferred: tuple[PreferredNodeTerm, ...] = Field(default=(), description="nodes that are preferred")
    replicas_apart: Literal["Required", "Preferred"] | None = Field(
        default=None, description="replicas of this service on different nodes"
    )


class TopologySpread(Model):
    """Spread the replicas evenly over zones, nodes or other groups of nodes."""

    topology_key: LabelKey = Field(description="node label whose values are the groups")
    max_skew: Annotated[int, Field(ge=1, le=1000), WHOLE] = Field(
        default=1, description="largest difference between two groups"
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="ScheduleAnyway", description="whether a replica waits when it cannot be spread"
    )
