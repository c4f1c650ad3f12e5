"""What is really there: the Kubernetes side, read through one shared watch and explained by pure functions."""

from provisioner.cluster.cache import ClusterCache
from provisioner.cluster.client import ClusterClient, ForeignObject
from provisioner.cluster.diagnosis import Diagnosis, diagnose
from provisioner.cluster.health import Timing
from provisioner.cluster.objects import PodRef, Snapshot
from provisioner.cluster.permissions import NEEDED, Permission
from provisioner.cluster.readiness import Readiness, readiness
from provisioner.cluster.rollout import stuck_pods

__all__ = [
    "NEEDED",
    "ClusterCache",
    "ClusterClient",
    "Diagnosis",
    "ForeignObject",
    "Permission",
    "PodRef",
    "Readiness",
    "Snapshot",
    "Timing",
    "diagnose",
    "readiness",
    "stuck_pods",
]
