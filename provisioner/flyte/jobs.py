"""Jobs that a cleanup waits for: asked about aside, and told from memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from provisioner import settings
from provisioner.errors import Problem, SpecError
from provisioner.spec.base import is_object_name

if TYPE_CHECKING:
    from provisioner.control.chores import Chores
    from provisioner.janitor.facts import Liveness
    from provisioner.janitor.owners_object import OwnerObjects

# Kind -> how the janitor names the type of an object.
KINDS = {
    "Job": "jobs.v1.batch",
    "PyTorchJob": "pytorchjobs.v1.kubeflow.org",
    "TFJob": "tfjobs.v1.kubeflow.org",
    "MPIJob": "mpijobs.v1.kubeflow.org",
}
_FRESH_SECONDS = 5.0


def check(kind: str, name: str, *, source: str) -> str:
    """A job as `KIND/NAME`.

    Args:
        kind: For example `TFJob`.
        name: Its name.
        source: Where it came from, for the error.

    Raises:
        SpecError: There is no such kind, or the name can be no object's.
    """
    problems = []
    if kind not in KINDS:
        problems.append(Problem("wait_for", kind, f"one of {', '.join(KINDS)}"))
    if not is_object_name(name):
        problems.append(Problem("job_name", name[:80], "the name of a Kubernetes object"))
    if problems:
        raise SpecError(problems, source=source)
    return f"{kind}/{name}"


class Jobs:
    """Whether jobs have ended. Makes its connection at the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[Chores, OwnerObjects] | None = None

    def liveness(self, namespace: str, job: str) -> Liveness | None:
        """Whether a job still runs; None until that was asked.

        A job that is gone has ended. Answers from memory.

        Args:
            namespace: Its namespace.
            job: `KIND/NAME`.

        Raises:
            ProvisionerError: It could not be asked.
        """
        chores, objects = self._parts()
        kind, _, name = job.partition("/")
        reference = f"{KINDS[kind]}/{namespace}/{name}"
        outcome = chores.ask(reference, lambda: objects.ask([reference])[reference], fresh=lambda _: _FRESH_SECONDS)
        if outcome is None:
            return None
        if outcome.error is not None:
            raise outcome.error
        found: Liveness = outcome.value
        return found

    def _parts(self) -> tuple[Chores, OwnerObjects]:
        from provisioner.cluster import ClusterClient
        from provisioner.control.chores import Chores
        from provisioner.janitor.owners_object import OwnerObjects

        with self._lock:
            if self._made is None:
                self._made = Chores(), OwnerObjects(ClusterClient(settings.load()))
            return self._made
