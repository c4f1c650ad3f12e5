"""Kubernetes objects of the demonstration, by plain calls: what a user would do with kubectl."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import PODS, SERVICES, Call, Resource
from provisioner.cluster.transport import NotFoundError
from provisioner.demo.report import DemoError

JOBS = Resource("Job", "batch", "v1", "jobs")
TFJOBS = Resource("TFJob", "kubeflow.org", "v1", "tfjobs")
_POLL_SECONDS = 0.2


class Objects:
    """Objects of one namespace.

    Args:
        client: Calls the API server.
        namespace: Which namespace.
    """

    def __init__(self, client: ClusterClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    def create(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Create one object."""
        self._client.transport.json(Call("create", resource, self.namespace), body=manifest)

    def get(self, resource: Resource, name: str) -> Mapping[str, Any]:
        """Read one object."""
        return self._client.transport.json(Call("get", resource, self.namespace, name))

    def delete(self, resource: Resource, name: str) -> None:
        """Delete one object and what it owns; it need not exist."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            self._client.transport.json(Call("delete", resource, self.namespace, name), body=body)
        except NotFoundError:
            return

    def listed(self, resource: Resource, selector: str) -> list[Mapping[str, Any]]:
        """Objects by label, in the order of their names.

        Args:
            resource: Of which kind.
            selector: For example `app=store`.
        """
        answer = self._client.transport.json(Call("list", resource, self.namespace), query={"labelSelector": selector})
        return sorted(answer.get("items") or [], key=lambda item: str(item["metadata"]["name"]))

    def pod_uids(self, selector: str) -> dict[str, str]:
        """Name -> uid of the pods by label; the uid tells a pod from one of the same name that came later."""
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in self.listed(PODS, selector)}

    def log(self, pod: str, *, lines: int = 20) -> str:
        """The last lines that a pod's only container has written.

        Args:
            pod: Its name.
            lines: How many.

        Raises:
            ProvisionerError: They cannot be read.
        """
        with self._client.logs(self.namespace, pod, tail=lines) as found:
            return "\n".join(found)

    def names(self, selector: str) -> list[str]:
        """`Kind name` of all jobs, pods and services by label."""
        found = [(resource, item) for resource in (JOBS, PODS, SERVICES) for item in self.listed(resource, selector)]
        with contextlib.suppress(NotFoundError):  # a cluster without the training operator
            found += [(TFJOBS, item) for item in self.listed(TFJOBS, selector)]
        return [f"{resource.kind} {item['metadata']['name']}" for resource, item in found]


def await_true(check: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition.

    Args:
        check: The condition.
        seconds: How long at most.
        what: What it would mean, for the error.

    Raises:
        DemoError: It did not come true in time.
    """
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {seconds:g} s in vain for this: {what}")
        time.sleep(_POLL_SECONDS)
