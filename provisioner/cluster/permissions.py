"""What this program must be allowed to do, in one table.

From it come the question whether we may (`ClusterClient.permissions`) and the
answer what a role must grant.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource, as RBAC names them.

    Attributes:
        verb: For example `watch`.
        group: API group; "" is the core group.
        resource: For example `statefulsets`.
        subresource: For example `log`, or "".
        optional: Whether only detail is lost without it.
        cluster_wide: Whether it is about objects outside of namespaces.
        name: The one object that it is about, or "" for all.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    optional: bool = False
    cluster_wide: bool = False
    name: str = ""

    def __str__(self) -> str:
        what = self.resource + (f"/{self.subresource}" if self.subresource else "")
        which = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{which}" + (f" of group {self.group}" if self.group else "")


_READ = ("get", "list", "watch")
_WRITE = ("create", "patch", "delete")

NEEDED: tuple[Permission, ...] = (
    *(Permission(verb, "apps", "statefulsets") for verb in (*_READ, *_WRITE)),
    *(Permission(verb, "", "services") for verb in (*_READ, *_WRITE)),
    *(Permission(verb, "", "pods") for verb in (*_READ, "delete")),
    *(Permission(verb, "", "secrets", optional=True) for verb in ("get", "list", *_WRITE)),
    *(Permission(verb, "policy", "poddisruptionbudgets", optional=True) for verb in ("get", "list", *_WRITE)),
    Permission("get", "", "pods", "log", optional=True),
    *(Permission(verb, "", "persistentvolumeclaims") for verb in ("list", "watch")),
    Permission("delete", "", "persistentvolumeclaims", optional=True),
    *(Permission(verb, "", "events", optional=True) for verb in ("list", "watch")),
    # The users of shared services, and the servers' signs of life.
    *(
        Permission(verb, "coordination.k8s.io", "leases", optional=True)
        for verb in ("get", "list", "create", "patch", "delete")
    ),
    Permission("get", "", "namespaces", optional=True, cluster_wide=True),
    *(Permission(verb, "", "namespaces", optional=True, cluster_wide=True) for verb in ("list", "watch")),
)
