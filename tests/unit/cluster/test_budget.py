"""What the cache may cost: memory per 1,000 services, as counted by the interpreter itself."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

from provisioner.cluster import parse
from provisioner.cluster.objects import Pod
from provisioner.cluster.store import ObjectStore
from provisioner.identity import LABEL_STACK

SERVICES, REPLICAS = 250, 3
BUDGET_MB = 10.0


def template(document: dict[str, Any]) -> str:
    """An object as text, with places for what tells one service from another."""
    document["metadata"] |= {"name": "@NAME@", "uid": "00000000-0000-0000-0000-@UID@"}
    document["metadata"]["labels"][LABEL_STACK] = "@STACK@"
    return json.dumps(document)


def read(text: str, number: int, ordinal: int = 0) -> Any:
    """The object of one service, as if it had just been read."""
    name = f"graph-store-{number:04d}"
    values = {"@NAME@": f"{name}-{ordinal}", "@UID@": f"{number:08d}{ordinal:04d}", "@STACK@": f"{name}-abcdefghij"}
    for place, value in values.items():
        text = text.replace(place, value)
    return json.loads(text)


def test_services_stay_within_the_budget() -> None:
    recorded = json.loads((Path(__file__).parent / "recorded" / "ready.json").read_text())
    statefulset, service = template(recorded["statefulset"]), template(recorded["service"])
    pod = template(recorded["pods"][0])
    store = ObjectStore()
    tracemalloc.start()
    try:
        for number in range(SERVICES):
            store.put(parse.statefulset(read(statefulset, number)))
            store.put(parse.service(read(service, number)))
            for ordinal in range(REPLICAS):
                store.put(parse.pod(read(pod, number, ordinal)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.count(Pod) == SERVICES * REPLICAS
    assert held / 1e6 * 1000 / SERVICES < BUDGET_MB
