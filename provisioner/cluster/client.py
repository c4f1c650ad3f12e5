"""Questions to the API server itself, where the cache must not answer.

Before anything is created (is the name taken?), after everything was deleted
(is it really gone?), and for what no cache holds: logs, permissions, identity
of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.cluster.api import (
    ACCESS_REVIEWS,
    CLAIMS,
    NAMESPACES,
    PODS,
    SERVICES,
    STATEFULSETS,
    Call,
    Resource,
)
from provisioner.cluster.logs import LogLines
from provisioner.cluster.objects import PodRef
from provisioner.cluster.parse import items, mapping, stack_of, text
from provisioner.cluster.permissions import NEEDED, Permission
from provisioner.cluster.transport import METADATA, METADATA_LIST, NotFoundError, Transport
from provisioner.errors import PermanentError, TransientError
from provisioner.identity import LABEL_STACK, Identity
from provisioner.settings import Settings

PAGE = 500
LOG_BYTES = 1 << 20
# Kubelet may be silent for as long as the container is; this bounds only a lost connection.
FOLLOW_SECONDS = 3600.0
# In the order in which they are made; a name is looked up before anything is made.
_NAMED: tuple[Resource, ...] = (SERVICES, STATEFULSETS)
_LABELLED: tuple[Resource, ...] = (STATEFULSETS, SERVICES, PODS)


@dataclass(frozen=True)
class ForeignObject:
    """An object that has the name we want and does not belong to this service.

    Attributes:
        kind: Its kind.
        namespace: Its namespace.
        name: Its name.
        owner: Who it belongs to, as far as it tells.
    """

    kind: str
    namespace: str
    name: str
    owner: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} ({self.owner})"


def _owner(metadata: Any) -> str:
    """Who an object says it belongs to."""
    stack = stack_of(metadata)
    if stack:
        return f"belongs to the data service stack {stack!r}"
    for reference in items(metadata, "ownerReferences"):
        return f"owned by {text(reference, 'kind')} {text(reference, 'name')!r}"
    labels = mapping(metadata, "labels")
    manager = text(labels, "app.kubernetes.io/managed-by")
    if manager:
        instance = text(labels, "app.kubernetes.io/instance")
        return f"managed by {manager}" + (f", instance {instance!r}" if instance else "")
    managers = sorted({text(entry, "manager") for entry in items(metadata, "managedFields")} - {""})
    return f"written by {', '.join(managers)}" if managers else "owner unknown"


class ClusterClient:
    """Direct calls to one cluster; safe for use by many threads.

    Every call is bounded in time and raises errors of our own tree alone:
    TransientError when repeating may help, PermanentError otherwise.

    Args:
        settings: Which kubeconfig and context.
        transport: How to call; by default made from the settings.
    """

    def __init__(self, settings: Settings, transport: Transport | None = None) -> None:
        self.transport = transport or Transport(settings)

    def cluster_id(self) -> str:
        """What tells this cluster from every other: the uid of its kube-system namespace.

        Raises:
            ProvisionerError: The cluster cannot be asked, or refuses to answer.
        """
        call = Call("get", NAMESPACES, name="kube-system")
        uid = text(mapping(self.transport.json(call, accept=METADATA), "metadata"), "uid")
        if not uid:
            raise PermanentError(f"cannot {call}: the answer has no uid", reason="InvalidAnswer")
        return uid

    def namespace_exists(self, namespace: str) -> bool:
        """Whether a namespace exists and is not being deleted.

        Args:
            namespace: Its name.
        """
        document = self._get(NAMESPACES, None, namespace)
        return document is not None and "deletionTimestamp" not in mapping(document, "metadata")

    def foreign(self, identity: Identity) -> list[ForeignObject]:
        """Objects that have our names and do not carry our label: look before you create.

        Args:
            identity: The service that is about to be made.
        """
        found = []
        for resource in _NAMED:
            document = self._get(resource, identity.namespace, identity.service)
            metadata = mapping(document, "metadata")
            if document is not None and stack_of(metadata) != identity.stack:
                found.append(ForeignObject(resource.kind, identity.namespace, identity.service, _owner(metadata)))
        return found

    def remaining(self, identity: Identity, *, claims: bool = True) -> list[str]:
        """What still exists of a service: absence is read from the API server, never assumed.

        Only what carries the label of this very stack counts. An object that
        has the name and not the label is somebody else's (see `foreign`).

        Args:
            identity: The service that was deleted.
            claims: Whether claims count; not, when they are kept on purpose.

        Returns:
            For example `["StatefulSet default/store", "Pod default/store-0"]`.
        """
        left = []
        for resource in (*_LABELLED, CLAIMS) if claims else _LABELLED:
            for item in self._list(resource, identity.namespace, f"{LABEL_STACK}={identity.stack}"):
                left.append(f"{resource.kind} {identity.namespace}/{text(mapping(item, 'metadata'), 'name')}")
        return left

    def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Delete one pod, so that its StatefulSet makes it anew.

        Args:
            namespace: Its namespace.
            name: Its name.
            uid: Its uid; a pod of the same name with another uid is left alone.

        Returns:
            Whether it was this pod, and still there.
        """
        call = Call("delete", PODS, namespace, name)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            self.transport.json(call, body=body)
        except NotFoundError:
            return False
        except TransientError as error:
            if error.reason == "Conflict":  # the API server's answer to a uid that differs
                return False
            raise
        return True

    def logs(
        self,
        namespace: str,
        pod: str,
        *,
        container: str | None = None,
        previous: bool = False,
        tail: int | None = None,
        follow: bool = False,
    ) -> LogLines:
        """The log of a container, line by line.

        Args:
            namespace: Namespace of the pod.
            pod: Name of the pod.
            container: Name of the container; the only one when None.
            previous: The log of the run before the present one.
            tail: Only so many of the last lines; all when None.
            follow: Go on with new lines until the container ends.

        Raises:
            ProvisionerError: There is no such pod or log, or it cannot be read.

        Example:
            `for line in client.logs("default", "store-0", tail=20): print(line)`
        """
        query: dict[str, str | int] = {"previous": str(previous).lower(), "follow": str(follow).lower()}
        if container is not None:
            query["container"] = container
        if tail is not None:
            query["tailLines"] = tail
        if not follow:
            query["limitBytes"] = LOG_BYTES
        call = Call("get", PODS, namespace, pod, "log")
        response = self.transport.open(call, query=query, accept="*/*", read_seconds=FOLLOW_SECONDS if follow else None)
        return LogLines(response, f"pod {namespace}/{pod}")

    def last_lines(self, reference: PodRef, *, tail: int = 10) -> str:
        """The last lines of one run of a container, for a diagnosis; "" when there are none.

        Args:
            reference: Which run of which container.
            tail: How many lines.

        Raises:
            TransientError: The API server or kubelet cannot be reached.
        """
        try:
            with self.logs(
                reference.namespace,
                reference.pod,
                container=reference.container,
                previous=reference.previous,
                tail=tail,
            ) as lines:
                return "\n".join(lines)
        except PermanentError:
            # The run was cleaned up, or logs are not for us: a diagnosis does without.
            return ""

    def permissions(self, namespace: str, needed: Sequence[Permission] = NEEDED) -> list[Permission]:
        """Which of the needed permissions we do not have.

        Args:
            namespace: Where.
            needed: What to ask for; by default all that this program does.

        Returns:
            Those that were refused; an empty list is a good answer.
        """
        refused = []
        for permission in needed:
            attributes = {
                "verb": permission.verb,
                "group": permission.group,
                "resource": permission.resource,
                "subresource": permission.subresource,
                **({} if permission.cluster_wide else {"namespace": namespace}),
            }
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            answer = self.transport.json(Call("create", ACCESS_REVIEWS), body=body)
            if mapping(answer, "status").get("allowed") is not True:
                refused.append(permission)
        return refused

    def _get(self, resource: Resource, namespace: str | None, name: str) -> Any:
        try:
            return self.transport.json(Call("get", resource, namespace, name), accept=METADATA)
        except NotFoundError:
            return None

    def _list(self, resource: Resource, namespace: str, selector: str) -> Iterator[Any]:
        # No resourceVersion: the answer is as of now, not from the API server's own cache.
        query: dict[str, str | int] = {"labelSelector": selector, "limit": PAGE}
        while True:
            page = self.transport.json(Call("list", resource, namespace), query=query, accept=METADATA_LIST)
            yield from items(page, "items")
            token = text(mapping(page, "metadata"), "continue")
            if not token:
                return
            query["continue"] = token
