"""What the janitor must be allowed to do, in one table: `doctor --gc` asks for it, docs/janitor.md grants it."""

from __future__ import annotations

from provisioner.cluster import Permission
from provisioner.cluster.leases import LEASES
from provisioner.janitor.owners_flyteworkflow import WORKFLOWS

_OURS = (
    ("apps", "statefulsets", False),
    ("", "services", False),
    ("", "secrets", True),
    ("policy", "poddisruptionbudgets", True),
)

SWEEP: tuple[Permission, ...] = (
    # The engine reads what it deletes, and waits by a watch until it is gone.
    *(
        Permission(verb, group, resource, optional=optional)
        for group, resource, optional in _OURS
        for verb in ("get", "list", "watch", "patch", "delete")
    ),
    *(Permission(verb, "", "pods") for verb in ("get", "list", "patch", "delete")),
    *(Permission(verb, "", "persistentvolumeclaims") for verb in ("list", "patch", "delete")),
    *(Permission(verb, LEASES.group, LEASES.plural, optional=True) for verb in ("get", "list", "delete")),
    Permission("create", "", "events", optional=True),
    Permission("get", "", "namespaces", cluster_wide=True),
)
"""For a sweep, in each namespace that is swept."""

FLYTEWORKFLOWS: tuple[Permission, ...] = tuple(
    Permission(verb, WORKFLOWS.group, WORKFLOWS.plural) for verb in ("get", "list")
)
"""Where owners are FlyteWorkflow objects: in all namespaces."""


def election(lease: str) -> tuple[Permission, ...]:
    """For `serve --gc-interval`, in the namespace of its Lease.

    Args:
        lease: Its name.
    """
    # What does not exist has no name that a rule could name.
    create = Permission("create", LEASES.group, LEASES.plural)
    return (create, *(Permission(verb, LEASES.group, LEASES.plural, name=lease) for verb in ("get", "update")))
