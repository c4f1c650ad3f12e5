"""What the cache may cost: memory per 1,000 services, as counted by the interpreter itself."""

from __future__ import annotations

import copy
import json
import tracemalloc
from pathlib import Path
from typing import Any

from provisioner.cluster import parse
from provisioner.cluster.objects import Pod
from provisioner.cluster.store import ObjectStore
from provisioner.identity import LABEL_STACK

SERVICES, REPLICAS = 1000, 3
BUDGET_MB = 10.0


def renamed(document: dict[str, Any], number: int, name: str) -> dict[str, Any]:
    """The same object of another service, as if it had just been read."""
    changed = copy.deepcopy(document)
    changed["metadata"] |= {"name": name, "uid": f"{number:08d}-0000-0000-0000-{hash(name) & 0xFFFFFFFFFFFF:012x}"}
    changed["metadata"]["labels"] |= {LABEL_STACK: f"graph-store-{number:04d}-abcdefghij"}
    result: dict[str, Any] = json.loads(json.dumps(changed))
    return result


def test_a_thousand_services_stay_within_the_budget() -> None:
    recorded = json.loads((Path(__file__).parent / "recorded" / "ready.json").read_text())
    store = ObjectStore()
    tracemalloc.start()
    try:
        for number in range(SERVICES):
            name = f"graph-store-{number:04d}"
            store.put(parse.statefulset(renamed(recorded["statefulset"], number, name)))
            store.put(parse.service(renamed(recorded["service"], number, name)))
            for ordinal in range(REPLICAS):
                store.put(parse.pod(renamed(recorded["pods"][0], number, f"{name}-{ordinal}")))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.count(Pod) == SERVICES * REPLICAS
    assert held / 1e6 < BUDGET_MB
