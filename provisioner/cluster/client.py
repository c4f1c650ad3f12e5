"""Questions to the API server itself, where the cache must not answer.

Before anything is created (is the name taken?), after everything was deleted
(is it really gone?), and for what no cache holds: logs, permissions, identity
of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.cluster.api import (
    ACCESS_REVIEWS,
    BUDGETS,
    CLAIMS,
    NAMESPACES,
    PODS,
    SECRETS,
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
from provisioner.identity import LABEL_DOMAIN, LABEL_OWNER, LABEL_PROJECT, LABEL_STACK, Identity
from provisioner.settings import Settings

PAGE = 500
LOG_BYTES = 1 << 20
# Kubelet may be silent for as long as the container is; this bounds only a lost connection.
FOLLOW_SECONDS = 3600.0
# In the order in which they are made; a name is looked up before anything is made.
_NAMED: tuple[Resource, ...] = (SERVICES, STATEFULSETS, SECRETS, BUDGETS)
# The StatefulSet first, else it makes anew what is deleted after it.
_MADE: tuple[Resource, ...] = (STATEFULSETS, SERVICES, SECRETS, BUDGETS)
# Only services that ask for one have one; who may not read them has made none.
_OPTIONAL = frozenset({SECRETS, BUDGETS})


@dataclass(frozen=True)
class ForeignObject:
    """An object that has the name we want and does not belong to this service.

    Attributes:
        kind: Its kind.
        namespace: Its namespace.
        name: Its name.
        owner: Who it belongs to, as far as it tells; fits after "belongs to".
    """

    kind: str
    namespace: str
    name: str
    owner: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} (belongs to {self.owner})"


def _owner(metadata: Any) -> str:
    """Who an object says it belongs to."""
    stack, labels = stack_of(metadata), mapping(metadata, "labels")
    if stack:
        project, domain, execution = (text(labels, label) for label in (LABEL_PROJECT, LABEL_DOMAIN, LABEL_OWNER))
        whose = f", project {project!r}, domain {domain!r}" if project else ""
        return f"the data service stack {stack!r}{whose}" + (f", execution {execution!r}" if execution else "")
    for reference in items(metadata, "ownerReferences"):
        return f"{text(reference, 'kind')} {text(reference, 'name')!r}"
    manager, instance = text(labels, "app.kubernetes.io/managed-by"), text(labels, "app.kubernetes.io/instance")
    if manager:
        return manager + (f", instance {instance!r}" if instance else "")
    managers = sorted({text(entry, "manager") for entry in items(metadata, "managedFields")} - {""})
    return f"somebody else (written by {', '.join(managers)})" if managers else "somebody else"


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

    def remaining(self, identity: Identity) -> list[str]:
        """What still exists of a service: absence is read from the API server, never assumed.

        Only what carries the label of this very stack counts. An object that
        has the name and not the label is somebody else's (see `foreign`), and
        a claim that the retention policy keeps is not waited for.

        Args:
            identity: The service that was deleted.

        Returns:
            For example `["StatefulSet default/store", "Pod default/store-0"]`.
        """
        left = []
        for resource in (*_MADE, PODS, CLAIMS):
            for metadata in self._labelled(resource, identity):
                # With a policy of Delete the StatefulSet's controller makes itself the claim's owner.
                going = "deletionTimestamp" in metadata or bool(items(metadata, "ownerReferences"))
                if resource is not CLAIMS or going:
                    left.append(f"{resource.kind} {identity.namespace}/{text(metadata, 'name')}")
        return left

    def services(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Names of the services that carry some labels, complete or not.

        Args:
            namespace: Theirs.
            labels: All of these.
        """
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        names = {
            text(mapping(item, "metadata"), "name")
            for resource in (STATEFULSETS, SERVICES)
            for item in items(
                self.transport.json(
                    Call("list", resource, namespace), query={"labelSelector": selector}, accept=METADATA_LIST
                ),
                "items",
            )
        }
        return sorted(names)

    def delete_labelled(self, identity: Identity) -> list[str]:
        """Delete what carries the label of this very stack, whoever made it.

        Pods follow their StatefulSet, and claims by its retention policy; a
        pod without an owner is deleted here.

        Args:
            identity: The service that is to go.

        Returns:
            What was asked to go, for example `["StatefulSet default/store"]`.
        """
        deleted = []
        for resource in (*_MADE, PODS):
            for metadata in self._labelled(resource, identity):
                owned = resource is PODS and bool(items(metadata, "ownerReferences"))
                if owned or "deletionTimestamp" in metadata:
                    continue
                name = text(metadata, "name")
                if self._delete(resource, identity.namespace, name, text(metadata, "uid")):
                    deleted.append(f"{resource.kind} {identity.namespace}/{name}")
        return deleted

    def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Delete one pod, so that its StatefulSet makes it anew.

        Args:
            namespace: Its namespace.
            name: Its name.
            uid: Its uid; a pod of the same name with another uid is left alone.

        Returns:
            Whether it was this pod, and still there.
        """
        return self._delete(PODS, namespace, name, uid)

    def logs(
        self,
        namespace: str,
        pod: str,
        *,
        container: str | None = None,
        previous: bool = False,
        tail: int | None = None,
        follow: bool = False,
        timestamps: bool = False,
        since: str = "",
    ) -> LogLines:
        """The log of a container, line by line.

        Args:
            namespace: Namespace of the pod.
            pod: Name of the pod.
            container: Name of the container; the only one when None.
            previous: The log of the run before the present one.
            tail: Only so many of the last lines; all when None.
            follow: Go on with new lines until the container ends.
            timestamps: Begin each line with the time at which it was written.
            since: Only lines from this time on (RFC 3339), to the second.

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
        if timestamps:
            query["timestamps"] = "true"
        if since:
            query["sinceTime"] = since
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
                "name": permission.name,
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
        except PermanentError as error:
            if resource in _OPTIONAL and error.reason == "Forbidden":
                return None
            raise

    def _delete(self, resource: Resource, namespace: str, name: str, uid: str) -> bool:
        """Delete one object, and none of the same name that came after it."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            self.transport.json(Call("delete", resource, namespace, name), body=body)
        except NotFoundError:
            return False
        except TransientError as error:
            if error.reason == "Conflict":  # the API server's answer to a uid that differs
                return False
            raise
        return True

    def _labelled(self, resource: Resource, identity: Identity) -> Iterator[Mapping[str, Any]]:
        """Metadata of the objects of one kind that carry the stack's label."""
        # No resourceVersion: the answer is as of now, not from the API server's own cache.
        query: dict[str, str | int] = {"labelSelector": f"{LABEL_STACK}={identity.stack}", "limit": PAGE}
        call = Call("list", resource, identity.namespace)
        while True:
            try:
                page = self.transport.json(call, query=query, accept=METADATA_LIST)
            except PermanentError as error:
                if resource in _OPTIONAL and error.reason == "Forbidden":
                    return
                raise
            yield from (mapping(item, "metadata") for item in items(page, "items"))
            token = mapping(page, "metadata").get("continue")
            if not token:
                return
            query["continue"] = str(token)
