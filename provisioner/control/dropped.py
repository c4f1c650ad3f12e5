"""What a cluster silently leaves out of what was applied, because a feature is off there.

The API server drops such a field without a word, so nobody would learn that an
update goes one replica at a time after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.spec import DataServiceSpec


def dropped(spec: DataServiceSpec, live: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The fields of a specification that have no effect in this cluster.

    Args:
        spec: What was applied.
        live: The StatefulSet as it is; None when it is not there.

    Returns:
        One sentence each.
    """
    if live is None or spec.max_unavailable is None:
        return ()
    strategy = ((live.get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate") or {}
    if "maxUnavailable" in strategy:
        return ()
    return (
        f"this cluster ignores maxUnavailable: {spec.max_unavailable}, since its feature gate "
        "MaxUnavailableStatefulSet is off; updates replace one replica at a time",
    )
