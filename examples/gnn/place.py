"""Where a worker stands among its peers, as the job that started it says in the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

# Where worker 0 listens when the job names no port of its own.
_PORT = 29500


@dataclass(frozen=True)
class Place:
    """One worker among others.

    Attributes:
        rank: Number of this worker.
        workers: Number of workers.
        leader: `host:port` of worker 0; "" when there is just one.
    """

    rank: int = 0
    workers: int = 1
    leader: str = ""


def place(environ: Mapping[str, str]) -> Place:
    """Read it from what a TFJob, a PyTorchJob or an indexed Job sets; alone when nothing is set.

    An indexed Job says the rank alone: number of workers and leader are
    arguments there.
    """
    if "TF_CONFIG" in environ:
        return _of_tensorflow(json.loads(environ["TF_CONFIG"]))
    if "WORLD_SIZE" in environ:
        workers = int(environ["WORLD_SIZE"])
        leader = f"{environ['MASTER_ADDR']}:{environ.get('MASTER_PORT', _PORT)}"
        return Place(int(environ["RANK"]), workers, leader if workers > 1 else "")
    return Place(int(environ.get("JOB_COMPLETION_INDEX", "0")))


def _of_tensorflow(config: dict) -> Place:
    # Chief first: it is worker 0 where there is one.
    peers = [(kind, index) for kind in ("chief", "worker") for index in range(len(config["cluster"].get(kind, [])))]
    task = config["task"]["type"], int(config["task"]["index"])
    kind, index = peers[0]
    leader = config["cluster"][kind][index] if len(peers) > 1 else ""
    return Place(peers.index(task), len(peers), leader)
