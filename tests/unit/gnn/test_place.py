"""A worker learns its place from whatever job started it."""

from __future__ import annotations

import json

import pytest
from gnn.place import Place, place

TWO = {"worker": ["t-worker-0.ns.svc:2222", "t-worker-1.ns.svc:2222"]}


def tf(cluster: dict, kind: str, index: int) -> dict[str, str]:
    # As the training operator writes it.
    config = {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}
    return {"TF_CONFIG": json.dumps(config)}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Place()),
        ({"JOB_COMPLETION_INDEX": "1"}, Place(rank=1)),
        (tf(TWO, "worker", 1), Place(1, 2, "t-worker-0.ns.svc:2222")),
        (tf({"worker": ["t-worker-0.ns.svc:2222"]}, "worker", 0), Place()),
        (tf({**TWO, "chief": ["t-chief-0.ns.svc:2222"]}, "worker", 0), Place(1, 3, "t-chief-0.ns.svc:2222")),
        (tf({**TWO, "ps": ["t-ps-0.ns.svc:2222"]}, "worker", 0), Place(0, 2, "t-worker-0.ns.svc:2222")),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "p-master-0", "MASTER_PORT": "23456"},
            Place(1, 2, "p-master-0:23456"),
        ),
        ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}, Place()),
    ],
)
def test_a_worker_knows_its_place(environ: dict[str, str], expected: Place) -> None:
    assert place(environ) == expected
