"""The kinds that we ask the API server about, and how a call is written down.

One table, so that a path, an error message and a permission can never name
different things.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object in the Kubernetes API.

    Attributes:
        kind: For example `StatefulSet`.
        group: API group; "" is the core group.
        version: API version.
        plural: For example `statefulsets`.
        namespaced: Whether its objects are in namespaces.
        at: Its path, for what is no collection of objects.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    at: str = ""

    @property
    def api_version(self) -> str:
        """What an object of it says as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Path of a collection, an object, or a part of one.

        Args:
            namespace: Its namespace; None for all of them.
            name: Name of the object; None for the collection.
            subresource: For example `log`.
        """
        if self.at:
            return self.at
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [self.plural, *(part for part in (name, subresource) if part is not None)]
        return "/" + "/".join(quote(part, safe="") for part in parts)


STATEFULSETS = Resource("StatefulSet", "apps", "v1", "statefulsets")
PODS = Resource("Pod", "", "v1", "pods")
SERVICES = Resource("Service", "", "v1", "services")
CLAIMS = Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims")
SECRETS = Resource("Secret", "", "v1", "secrets")
BUDGETS = Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")
EVENTS = Resource("Event", "", "v1", "events")
NAMESPACES = Resource("Namespace", "", "v1", "namespaces", namespaced=False)
STORAGE_CLASSES = Resource("StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False)
ENDPOINT_SLICES = Resource("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices")
VERSION = Resource("Version", "", "", "version", namespaced=False, at="/version")
ACCESS_REVIEWS = Resource("SelfSubjectAccessReview", "authorization.k8s.io", "v1", "selfsubjectaccessreviews", False)


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as an error names it.

    Attributes:
        verb: The verb that RBAC knows: get, list, watch, create, update, patch, delete.
        resource: What kind.
        namespace: In which namespace; None for all of them.
        name: Which object, if one.
        subresource: Which part of it, if one.
    """

    verb: str
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return self.resource.path(self.namespace, self.name, self.subresource)

    def __str__(self) -> str:
        what = self.resource.plural + (f"/{self.subresource}" if self.subresource else "")
        which = f" {self.name}" if self.name else ""
        if not self.resource.namespaced:
            return f"{self.verb} {what}{which}"
        where = "in all namespaces" if self.namespace is None else f"in namespace {self.namespace}"
        return f"{self.verb} {what}{which} {where}"
