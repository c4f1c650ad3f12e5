"""What one command works with: settings, engine and cluster, and how a name becomes a service."""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from provisioner import logs
from provisioner.cluster import ClusterClient
from provisioner.cluster.live import LiveObjects
from provisioner.control.operations import Operations
from provisioner.control.recorded import Recorded, recorded
from provisioner.control.request import ServiceRequest
from provisioner.engine import Checkpoint, Engine
from provisioner.errors import PermanentError, UsageError
from provisioner.identity import Identity, for_name
from provisioner.sealing import Sealer
from provisioner.settings import load
from provisioner.spec.load import is_service_name

if TYPE_CHECKING:
    from provisioner.spec.documents import ServiceDocument


@dataclass(frozen=True)
class Found:
    """A service that the backend knows.

    Attributes:
        identity: Its names and owner.
        checkpoint: Its stack's.
        record: What was asked for; None when its first operation was stopped before it said.
    """

    identity: Identity
    checkpoint: Checkpoint
    record: Recorded | None

    def request(self) -> ServiceRequest:
        """The request that made it, as if asked again now.

        Raises:
            PermanentError: That was never recorded.
        """
        if self.record is None:
            raise PermanentError(
                f"stack {self.identity.stack} does not say what it was to make",
                reason="NotRecorded",
                hint="apply the service again, or delete it",
            )
        return ServiceRequest(self.identity, self.record.spec, time.time(), shared=self.record.shared)


class Session:
    """One run of a verb.

    Args:
        namespace: Instead of the setting's.
        project: Instead of the setting's.
        domain: Instead of the setting's.
    """

    def __init__(self, namespace: str | None = None, project: str | None = None, domain: str | None = None) -> None:
        given = {"namespace": namespace, "project": project, "domain": domain}
        settings = load()
        self.settings = settings.model_copy(update={key: value for key, value in given.items() if value is not None})
        # What goes wrong is told by the verb itself; the log adds what nobody expects.
        level = settings.log_level if "log_level" in settings.model_fields_set else "error"
        logs.configure(settings, level=level)

    @cached_property
    def engine(self) -> Engine:
        """Pulumi."""
        return Engine(self.settings)

    @cached_property
    def cluster(self) -> ClusterClient:
        """The API server."""
        return ClusterClient(self.settings)

    @cached_property
    def live(self) -> LiveObjects:
        """Whole objects."""
        return LiveObjects(self.cluster.transport)

    @cached_property
    def sealer(self) -> Sealer:
        """Seals and opens secrets."""
        return Sealer.of(self.settings)

    @cached_property
    def operations(self) -> Operations:
        """What one operation does."""
        return Operations(self.engine, self.cluster, self.settings)

    def identity(self, name: str) -> Identity:
        """The identity of a service of that name, which need not exist.

        Args:
            name: Name of the service.

        Raises:
            UsageError: It can be no service's name.
        """
        if not is_service_name(name):
            raise UsageError(
                f"{name!r} is no name of a service", hint="use up to 52 of a-z, 0-9 and dashes, a letter first"
            )
        settings = self.settings
        return for_name(settings.project, settings.domain, namespace=settings.namespace, name=name)

    def request(self, document: ServiceDocument, *, replace: bool = False) -> ServiceRequest:
        """The request for a declared service; options stand in for what the document leaves out.

        Args:
            document: From a file.
            replace: Whether it may be made anew.
        """
        metadata, settings = document.metadata, self.settings
        identity = for_name(
            metadata.project or settings.project,
            metadata.domain or settings.domain,
            namespace=metadata.namespace or settings.namespace,
            name=metadata.name,
        )
        spec = self.sealer.sealed(document.spec, identity.stack)
        return ServiceRequest(identity, spec, time.time(), replace)

    def find(self, name: str) -> Found:
        """The service that a user names: by its own name within project, domain and namespace, or by its stack.

        Args:
            name: Name of the service, or of its stack.

        Raises:
            PermanentError: There is none (reason `NoSuchService`).
        """
        identity = self.identity(name)
        for stack in (identity.stack, name):
            checkpoint = self.engine.state.checkpoint(stack)
            if checkpoint is not None:
                record = recorded(checkpoint)
                return Found(record.identity if record else identity, checkpoint, record)
        raise self.no_such_service(name)

    def no_such_service(self, name: str) -> PermanentError:
        """The error for a name that nothing has, with the names that are close to it.

        Args:
            name: What the user wrote.
        """
        settings = self.settings
        names = {part for stack in self.engine.state.stacks() for part in (stack, stack.rpartition("-")[0])}
        close = difflib.get_close_matches(name, sorted(names), n=3)
        lead = f"did you mean {' or '.join(close)}? Also" if close else "see `provisioner list`; also"
        return PermanentError(
            f"there is no service {name} in namespace {settings.namespace} of project {settings.project}, "
            f"domain {settings.domain}, and no stack of that name",
            reason="NoSuchService",
            hint=f"{lead} check --namespace, --project and --domain",
        )
