"""How many services are in which phase, for a fleet's operator: counted when it is asked for, and nowhere kept.

What the cluster shows counts, so that a replica that has just started, or
that nobody asks about a service any more, tells the same as the others. What
is still on its way into the cluster, or out of it, only the queue knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from provisioner.cluster.objects import StatefulSet
from provisioner.control.queue import Kind, View
from provisioner.control.status import Phase


def census(
    statefulsets: Iterable[StatefulSet], views: Iterable[View], failed: Collection[str] = ()
) -> Mapping[Phase, int]:
    """How many services are in which phase.

    Args:
        statefulsets: Those of all services.
        views: What the queue knows.
        failed: Stacks of the services that have failed and are still spoken of.

    Returns:
        A number for each phase but `Gone`.
    """
    phases = {found.stack: shown(found) for found in statefulsets}
    for view in views:
        phase = _underway(view)
        if phase is Phase.GONE:
            phases.pop(view.intent.key, None)
        elif phase is not None:
            phases[view.intent.key] = phase
    phases |= dict.fromkeys(failed, Phase.FAILED)
    counted = Counter(phases.values())
    return {phase: counted[phase] for phase in Phase if phase is not Phase.GONE}


def shown(found: StatefulSet) -> Phase:
    """The phase of a service as the cluster alone shows it.

    Args:
        found: Its StatefulSet.
    """
    if found.deleted is not None:
        return Phase.REMOVING
    current = found.observed_generation >= found.generation and found.updated_replicas >= found.replicas
    return Phase.READY if current and found.ready_replicas >= found.replicas else Phase.STARTING


def _underway(view: View) -> Phase | None:
    """What the queue knows better than the cluster; None where it knows nothing better."""
    if view.intent.kind is Kind.REMOVE:
        return Phase.GONE if view.settled else Phase.REMOVING
    if view.settled:
        return None if view.error is None else Phase.FAILED
    return Phase.QUEUED if view.running is None else Phase.APPLYING


class PhaseCollector(Collector):
    """Gives Prometheus the census.

    Args:
        count: Takes it.
    """

    def __init__(self, count: Callable[[], Mapping[Phase, int]]) -> None:
        self._count = count

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: it is known without taking the census that several in one process do not exclude each other."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Take it now."""
        family = GaugeMetricFamily(
            "provisioner_services", "Services by phase, as this replica sees them", labels=["phase"]
        )
        for phase, number in self._count().items():
            family.add_metric([phase.value], number)
        yield family
