"""From both listings to an inventory that is complete enough to decide, and no more than that.

What costs a question of its own (a checkpoint, an owner, the pods of a
service) is asked only when the plan says that a decision depends on it. The
same code looks at everything and, just before something is removed, at that
one thing again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from provisioner.janitor.backend import Backend, Listing
from provisioner.janitor.decision import Plan
from provisioner.janitor.facts import Case, Inventory, Liveness, Owner, Unknown
from provisioner.janitor.judge import asked_about
from provisioner.janitor.memory import Memory
from provisioner.janitor.objects import Labelled, Objects
from provisioner.janitor.owners import Executions, ReferentSource
from provisioner.janitor.plan import plan
from provisioner.janitor.policy import Policy, Source
from provisioner.janitor.subject import Subject, subjects

T = TypeVar("T")


class Gatherer:
    """Finds out what a plan needs.

    Args:
        backend: The stacks.
        objects: The cluster.
        executions: Who knows Flyte executions.
        referents: Who knows Kubernetes objects that own services.
        memory: What is remembered.
        policy: Who is asked, and when.
        namespaces: The namespaces that are swept; all when empty.
        readers: Runs questions side by side.
        clock: The time, with its zone.
    """

    def __init__(
        self,
        backend: Backend,
        objects: Objects,
        executions: Executions,
        referents: ReferentSource,
        memory: Memory,
        policy: Policy,
        namespaces: Collection[str],
        readers: Executor,
        clock: Callable[[], datetime],
    ) -> None:
        self._backend = backend
        self._objects = objects
        self._executions = executions
        self._referents = referents
        self._memory = memory
        self._policy = policy
        self._namespaces = tuple(namespaces)
        self._readers = readers
        self._clock = clock

    def everything(self) -> tuple[Inventory, Plan]:
        """All that is known, and the plan that follows from it.

        Raises:
            ProvisionerError: One of the two listings cannot be had, so nothing can be said.
        """
        cluster = self._objects.cluster()
        listing = self._backend.listing()
        labelled = self._objects.labelled()
        cases = self._memory.cases(self._readers)
        return self._completed(self._inventory(cluster, listing, labelled, cases), self._policy)

    def one(self, stack: str, before: Inventory) -> tuple[Inventory, Plan]:
        """All that is known of one stack now, and what the plan says of it alone.

        Args:
            stack: Its name.
            before: What was known; nothing of it is relied on but the time of
                the stack's last change and what the backend is.
        """
        known = before.stacks.get(stack)
        record = self._backend.stack(stack, known.modified if known is not None else None)
        case = self._memory.case(stack)
        inventory = self._inventory(
            self._objects.cluster(),
            Listing({stack: record} if record is not None else {}),
            self._objects.labelled(stack),
            {stack: case} if case is not None else {},
        )
        # Of one thing alone every removal is all there is: the bounds are those of the whole.
        return self._completed(inventory, replace(self._policy, max_share=1.0, cluster=""))

    def _inventory(self, cluster: str, listing: Listing, labelled: Labelled, cases: dict[str, Case]) -> Inventory:
        return Inventory(
            cluster=cluster,
            backend=self._backend.id(),
            namespaces=self._namespaces,
            stacks=listing.stacks,
            objects=labelled.objects,
            leases=labelled.leases,
            cases=cases,
            remains=listing.remains,
            surplus=listing.surplus,
            unlisted=labelled.unlisted,
        )

    def _completed(self, inventory: Inventory, policy: Policy) -> tuple[Inventory, Plan]:
        """Ask until no decision depends on what was not asked; each round knows more, so it ends."""
        while True:
            found = plan(inventory, self._clock(), policy)
            if found.unread or found.unseen:
                inventory = self._look(inventory, found)
                continue
            asked = self._ask(inventory, policy)
            if asked is None:
                return inventory, found
            inventory = asked

    def _look(self, inventory: Inventory, found: Plan) -> Inventory:
        stacks, pods = dict(inventory.stacks), dict(inventory.pods)
        for name, checkpoint in self._each(self._backend.checkpoint, found.unread):
            if checkpoint is None:
                del stacks[name]
            else:
                stacks[name] = replace(stacks[name], checkpoint=checkpoint)
        pods.update(self._each(self._objects.pods, found.unseen))
        return replace(inventory, stacks=stacks, pods=pods)

    def _each(self, question: Callable[[str], T], names: Iterable[str]) -> list[tuple[str, T]]:
        ordered = sorted(names)
        return list(zip(ordered, self._readers.map(question, ordered), strict=True))

    def _ask(self, inventory: Inventory, policy: Policy) -> Inventory | None:
        """Ask about owners that were not asked about yet; None when there are none."""
        known = list(subjects(inventory))
        owners = {subject.owner for subject in known if asked_about(subject.owner, policy)} | _holders(known, policy)
        owners -= set(inventory.executions)
        references = {
            subject.owner_object for subject in known if Source.OBJECT in policy.sources and subject.owner_object
        } - set(inventory.referents)
        if not owners and not references:
            return None
        silence = Unknown("nobody answered")
        executions: dict[Owner, Liveness] = dict.fromkeys(owners, silence) | self._executions.ask(owners)
        referents: dict[str, Liveness] = dict.fromkeys(references, silence) | dict(self._referents.ask(references))
        return replace(
            inventory,
            executions={**inventory.executions, **executions},
            referents={**inventory.referents, **referents},
        )


def _holders(known: Iterable[Subject], policy: Policy) -> set[Owner]:
    """The executions that hold Leases."""
    if Source.LEASE not in policy.sources:
        return set()
    holders = {Owner.of_lease(lease) for subject in known for lease in subject.leases}
    return {holder for holder in holders if holder is not None and asked_about(holder, policy)}
