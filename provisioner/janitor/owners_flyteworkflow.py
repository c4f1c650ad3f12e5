"""Owners known by their FlyteWorkflow objects, which propeller keeps in this cluster.

The facts are propeller's own (v1.16): the object carries the labels
`execution-id`, `project` and `domain`; its name is that of the execution, or
begins with it where the setting for name suffixes is on. Propeller sets the
label `termination-status` when an execution has ended, and deletes the object
some hours later. Phases are those of `v1alpha1.WorkflowPhase`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import Call, Resource
from provisioner.cluster.parse import items, mapping, number, text, time
from provisioner.cluster.transport import METADATA_LIST, NotFoundError
from provisioner.errors import ProvisionerError
from provisioner.janitor.facts import Alive, Ended, Liveness, Owner, Unknown

WORKFLOWS = Resource("FlyteWorkflow", "flyte.lyft.com", "v1alpha1", "flyteworkflows")
_PAGE = 500
_TERMINATION, _TERMINATED = "termination-status", "terminated"
_EXECUTION, _PROJECT, _DOMAIN = "execution-id", "project", "domain"
_PHASES = ("Ready", "Running", "Succeeding", "Succeeded", "Failing", "Failed", "Aborted", "HandlingFailureNode")
_FAILED = _PHASES.index("Failed")
# Up to so many owners are asked for one by one; more, and one listing is cheaper.
_FEW = 3

_Found = Mapping[str, list[Mapping[str, Any]]]


class FlyteWorkflows:
    """Asks the cluster for FlyteWorkflow objects.

    Args:
        client: The cluster that propeller runs in.
    """

    name = "flyteworkflow"

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def ask(self, owners: Collection[Owner]) -> Mapping[Owner, Liveness]:
        """Whether executions still run.

        Args:
            owners: Which.
        """
        try:
            found = self._few(owners) if len(owners) <= _FEW else self._listed({})
        except NotFoundError:
            why = f"this cluster knows no {WORKFLOWS.kind} objects: Flyte's propeller runs elsewhere"
            return dict.fromkeys(owners, Unknown(why))
        except ProvisionerError as error:
            return dict.fromkeys(owners, Unknown(error.message))
        return {owner: self._answer(owner, found) for owner in owners}

    def _few(self, owners: Collection[Owner]) -> _Found:
        found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for owner in owners:
            # Objects that somebody made without propeller's labels are found by their name.
            for query in (
                {"labelSelector": f"{_EXECUTION}={owner.execution}"},
                {"fieldSelector": f"metadata.name={owner.execution}"},
            ):
                for name, metadata in self._listed(query).items():
                    found[name] += metadata
        return found

    def _listed(self, selection: Mapping[str, str]) -> _Found:
        """Metadata of the objects, by execution."""
        found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for metadata in self._pages(selection):
            found[text(mapping(metadata, "labels"), _EXECUTION) or text(metadata, "name")].append(metadata)
        return found

    def _pages(self, selection: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        query: dict[str, str | int] = {**selection, "limit": _PAGE}
        while True:
            page = self._client.transport.json(Call("list", WORKFLOWS), query=query, accept=METADATA_LIST)
            yield from (mapping(item, "metadata") for item in items(page, "items"))
            token = mapping(page, "metadata").get("continue")
            if not token:
                return
            query["continue"] = str(token)

    def _answer(self, owner: Owner, found: _Found) -> Liveness:
        mine = [metadata for metadata in found.get(owner.execution, ()) if _belongs(metadata, owner)]
        if not mine:
            return Ended(f"execution {owner} has no {WORKFLOWS.kind} object any more")
        running = [item for item in mine if mapping(item, "labels").get(_TERMINATION) != _TERMINATED]
        if running:
            return Alive(f"execution {owner} has not ended")
        return self._ended(owner, mine[0])

    def _ended(self, owner: Owner, metadata: Mapping[str, Any]) -> Liveness:
        """When and how it ended: in its status, which only the whole object shows."""
        call = Call("get", WORKFLOWS, text(metadata, "namespace"), text(metadata, "name"))
        try:
            status = mapping(self._client.transport.json(call), "status")
        except NotFoundError:
            return Ended(f"execution {owner} has no {WORKFLOWS.kind} object any more")
        except ProvisionerError as error:
            return Unknown(error.message)
        phase = number(status, "phase", -1)
        how = _PHASES[phase].lower() if 0 <= phase < len(_PHASES) else "ended"
        at = time(status, "stoppedAt") or time(status, "lastUpdatedAt")
        return Ended(f"execution {owner} {how}", at, failed=phase == _FAILED)


def _belongs(metadata: Mapping[str, Any], owner: Owner) -> bool:
    labels = mapping(metadata, "labels")
    project, domain = labels.get(_PROJECT, owner.project), labels.get(_DOMAIN, owner.domain)
    return (project, domain) == (owner.project, owner.domain)
