"""Who owns a service, and how the service is called everywhere.

A name is derived from the whole task execution id, so that two executions of
one registered workflow never meet and a repeated request always does. Names
are total: any input gives a valid name, and different inputs different ones
(a hash of the whole input is always part of a derived name).
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass

from provisioner.spec.load import NAME_LENGTH

PREFIX = "data-service-provisioner"
LABEL_STACK = f"{PREFIX}/stack"
LABEL_OWNER = f"{PREFIX}/owner"
LABEL_PROJECT = f"{PREFIX}/project"
LABEL_DOMAIN = f"{PREFIX}/domain"
ANNOTATION_SPEC_HASH = f"{PREFIX}/spec-hash"
ANNOTATION_OWNER = f"{PREFIX}/owner-id"
ANNOTATION_TTL = f"{PREFIX}/ttl"
ANNOTATION_DELETION_POLICY = f"{PREFIX}/deletion-policy"
ANNOTATION_SECRET_HASH = f"{PREFIX}/secret-hash"
ANNOTATION_START_DEADLINE = f"{PREFIX}/start-deadline"
ANNOTATION_BACKEND = f"{PREFIX}/backend"
ANNOTATION_KEEP = f"{PREFIX}/keep"
ANNOTATION_NOTICE = f"{PREFIX}/notice"
ANNOTATION_OWNER_OBJECT = f"{PREFIX}/owner-object"
ANNOTATION_USERS = f"{PREFIX}/users"
ANNOTATION_CLOSING = f"{PREFIX}/closing"
# Pulumi's own: under which field manager its provider applies an object, instead of a name made up for each.
ANNOTATION_FIELD_MANAGER = "pulumi.com/patchFieldManager"
# One for the server and the engine, so that what one applies the other changes without a conflict.
FIELD_MANAGER = PREFIX
# Value of ANNOTATION_USERS: its users hold leases, and without any it is nobody's.
USERS_LEASE = "lease"
# Project of services whose workflow runs on somebody's own machine, of which no Flyte knows.
LOCAL_PROJECT = "local"
# Before the name of a run of Flyte 2. No name of Flyte 1 has a dot, and nobody who knows the executions of Flyte 1 can
# say whether a run of Flyte 2 lives.
FLYTE2 = "flyte2."

_HASH_LENGTH = 10
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def short_hash(*parts: str) -> str:
    """A hash of some texts: 10 characters of a-z and 2-7 (50 bits).

    Args:
        parts: In order; ("a", "bc") and ("ab", "c") differ.
    """
    digest = hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass"))
    return base64.b32encode(digest.digest()).decode().lower()[:_HASH_LENGTH]


def dns_name(readable: str, *unique: str, length: int = NAME_LENGTH) -> str:
    """A valid object name (DNS-1035) that is readable and unique.

    Args:
        readable: What should be recognisable in it; any text.
        unique: The texts that tell it from others; any texts.
        length: Longest name, at least 16 characters.

    Example:
        >>> dns_name("GNN Store!", "p", "d", "exec1")
        'gnn-store-t74whaj3ye'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", readable.lower()).strip("-")
    if not slug or not slug[0].isalpha():
        slug = f"s-{slug}".strip("-")
    slug = slug[: length - _HASH_LENGTH - 1].rstrip("-")
    return f"{slug}-{short_hash(readable, *unique)}"


def label_value(text: str) -> str:
    """A valid label value for any text: itself where possible, else readable with a hash."""
    if _LABEL_VALUE.fullmatch(text):
        return text
    return dns_name(text, length=63)


@dataclass(frozen=True)
class TaskExecutionId:
    """The whole identity of one attempt of one task, as Flyte gives it."""

    project: str
    domain: str
    execution: str
    node: str
    task: str
    task_version: str
    attempt: int


@dataclass(frozen=True)
class Origin:
    """Where a service is recorded and where it runs, so that the janitor of another place leaves it alone.

    Attributes:
        cluster: Uid of the cluster's kube-system namespace, or "" if unknown.
        backend: Id of the state backend, or "" if unknown.
        manager: Field manager under which its objects are applied; "" where
            the engine made up one for each.
    """

    cluster: str = ""
    backend: str = ""
    manager: str = ""


UNKNOWN_ORIGIN = Origin()


@dataclass(frozen=True)
class Identity:
    """One service: its names and its owner.

    Attributes:
        project: Flyte project.
        domain: Flyte domain.
        namespace: Kubernetes namespace of its objects.
        service: Name of the StatefulSet and the Service.
        stack: Name of the Pulumi stack.
        owner: Name of the Flyte execution that owns it, or "".
    """

    project: str
    domain: str
    namespace: str
    service: str
    stack: str
    owner: str

    def labels(self) -> dict[str, str]:
        """The labels that every object of this service carries."""
        return {LABEL_STACK: self.stack, **self.owner_labels()}

    def owner_labels(self) -> dict[str, str]:
        """The labels that tell whose it is, which all services of one execution share."""
        return {
            LABEL_OWNER: label_value(self.owner),
            LABEL_PROJECT: label_value(self.project),
            LABEL_DOMAIN: label_value(self.domain),
        }

    def selector(self) -> dict[str, str]:
        """The labels by which its pods are selected."""
        return {LABEL_STACK: self.stack}

    def dns_name(self, cluster_domain: str = "cluster.local") -> str:
        """The DNS name of the headless Service."""
        return f"{self.service}.{self.namespace}.svc.{cluster_domain}"

    def replica_host(self, ordinal: int, cluster_domain: str = "cluster.local") -> str:
        """The DNS name of one replica."""
        return f"{self.service}-{ordinal}.{self.dns_name(cluster_domain)}"


def for_task(task: TaskExecutionId, *, namespace: str, name: str | None = None) -> Identity:
    """The identity of a service that belongs to one attempt of one task.

    Args:
        task: The whole task execution id.
        namespace: Kubernetes namespace.
        name: Readable part of the name; the execution's and node's otherwise.
    """
    unique = (
        task.project,
        task.domain,
        task.execution,
        task.node,
        task.task,
        task.task_version,
        str(task.attempt),
        namespace,
    )
    derived = dns_name(name or f"{task.execution}-{task.node}", *unique)
    return Identity(task.project, task.domain, namespace, service=derived, stack=derived, owner=task.execution)


def for_name(project: str, domain: str, *, namespace: str, name: str, owner: str = "") -> Identity:
    """The identity of a service that a user named; scoped by project and domain.

    Args:
        project: Project it belongs to.
        domain: Domain it belongs to.
        namespace: Kubernetes namespace.
        name: A valid service name, used for the objects as it is.
        owner: Name of the execution that owns it, if one does.
    """
    stack = dns_name(name, project, domain, namespace)
    return Identity(project, domain, namespace, service=name, stack=stack, owner=owner)


@dataclass(frozen=True)
class User:
    """Who uses a shared service: one node of one execution, whichever attempt of it.

    Attributes:
        project: Flyte project.
        domain: Flyte domain.
        execution: Name of the execution.
        node: Node of its workflow.
    """

    project: str
    domain: str
    execution: str
    node: str

    @property
    def holder(self) -> str:
        """As the holder of a Lease."""
        return f"{self.of_execution}:{self.node}"

    @property
    def of_execution(self) -> str:
        """What the holders of its whole execution begin with."""
        return ":".join((self.project, self.domain, self.execution))
