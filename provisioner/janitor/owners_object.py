"""Owners that are Kubernetes objects, named by an annotation of the service.

The annotation's value is `TYPE.VERSION.GROUP/NAMESPACE/NAME`, optionally
`/UID`: kubectl's own way to name a type without doubt, for example
`jobs.v1.batch/team-a/train` or `pods.v1./team-a/notebook`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import Call, Resource
from provisioner.cluster.parse import items, mapping, text, time
from provisioner.cluster.transport import NotFoundError
from provisioner.errors import ProvisionerError
from provisioner.janitor.facts import Alive, Ended, Liveness, Unknown

_REFERENCE = re.compile(
    r"(?P<plural>[a-z0-9]+)\.(?P<version>v[a-z0-9]+)(?:\.(?P<group>[a-z0-9.-]*))?"
    r"/(?P<namespace>[a-z0-9-]+)/(?P<name>[a-z0-9.-]+)(?:/(?P<uid>[0-9a-fA-F-]+))?"
)
# How Kubernetes and its operators say that something ran to its end.
_FINISHED = frozenset({"Complete", "Completed", "Succeeded", "Finished"})
_FAILED = frozenset({"Failed"})


class OwnerObjects:
    """Asks the cluster for objects that own services.

    Args:
        client: The cluster.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def ask(self, references: Collection[str]) -> Mapping[str, Liveness]:
        """Whether objects still need their service: they exist and have not run to their end.

        Args:
            references: As in the annotation.
        """
        return {reference: self._ask(reference) for reference in references}

    def _ask(self, reference: str) -> Liveness:
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return Unknown(f"owner object {reference!r} is not written as TYPE.VERSION.GROUP/NAMESPACE/NAME")
        resource = Resource(match["plural"], match["group"] or "", match["version"], match["plural"])
        # A list, since a type that does not exist answers a get like an object that does not exist.
        query = {"fieldSelector": f"metadata.name={match['name']}"}
        try:
            page = self._client.transport.json(Call("list", resource, match["namespace"]), query=query)
        except NotFoundError:
            return Unknown(f"this cluster knows no {resource.plural}.{resource.version}.{resource.group}")
        except ProvisionerError as error:
            return Unknown(error.message)
        found = [item for item in items(page, "items") if text(mapping(item, "metadata"), "name") == match["name"]]
        return _liveness(reference, found[0] if found else None, match["uid"])


def _liveness(reference: str, document: Mapping[str, Any] | None, uid: str | None) -> Liveness:
    if document is None:
        return Ended(f"its owner {reference} is gone")
    metadata, status = mapping(document, "metadata"), mapping(document, "status")
    if uid and text(metadata, "uid") != uid:
        return Ended(f"its owner {reference} is gone; another has its name")
    deleted = time(metadata, "deletionTimestamp")
    if deleted is not None:
        return Ended(f"its owner {reference} is being deleted", deleted)
    for condition in items(status, "conditions"):
        kind = text(condition, "type")
        if kind in _FINISHED | _FAILED and text(condition, "status") == "True":
            at = time(condition, "lastTransitionTime")
            return Ended(f"its owner {reference} is {kind.lower()}", at, failed=kind in _FAILED)
    phase = text(status, "phase")
    if phase in _FINISHED | _FAILED:
        return Ended(f"its owner {reference} is {phase.lower()}", failed=phase in _FAILED)
    return Alive(f"its owner {reference} exists")
