"""The objects of a new service, made before its engine has its turn.

An engine takes about a second of a processor for each service, so with many
services at once most of them wait for one. Their replicas need not: they are
scheduled, pull their image and load their shard meanwhile. The record comes
first, with what is wanted, as from an engine that was stopped just then: so
nobody takes the objects for strays, and whoever comes next can go on. The
engine then applies the same manifests under the same field manager, which
changes nothing, and records them.

It is a head start and no more. What cannot be done here is done by the engine,
and its word counts.
"""

from __future__ import annotations

import structlog

from provisioner.cluster.api import BUDGETS, SECRETS, SERVICES, STATEFULSETS, Call
from provisioner.cluster.transport import APPLY_PATCH, METADATA, Transport
from provisioner.control.request import ServiceRequest
from provisioner.engine import Component, Engine
from provisioner.errors import ProvisionerError
from provisioner.identity import Origin
from provisioner.resources.component import COMPONENT_TYPE, component_inputs
from provisioner.resources.manifests import manifests
from provisioner.sealing import Sealer

log = structlog.get_logger(__name__)

_KINDS = {resource.kind: resource for resource in (SERVICES, SECRETS, STATEFULSETS, BUDGETS)}


class HeadStart:
    """Makes objects by server-side apply; safe for several threads.

    Args:
        engine: Whose stacks they belong to.
        transport: How to call the API server.
        sealer: Opens the secrets of a specification.
    """

    def __init__(self, engine: Engine, transport: Transport, sealer: Sealer) -> None:
        self._engine = engine
        self._transport = transport
        self._sealer = sealer

    def give(self, request: ServiceRequest, origin: Origin) -> None:
        """Make the record and the objects of a service whose stack does not exist.

        Nothing is made of a service that was removed meanwhile, nor while
        somebody else is at work on its stack.

        Args:
            request: The service, which may be made: its names are free, or its own.
            origin: Where it is recorded and runs, and the field manager.

        Raises:
            PermanentError: A secret cannot be opened.
        """
        wanted = manifests(
            request.identity,
            request.spec,
            self._sealer.opened(request.spec, request.stack),
            origin,
            shared=request.shared,
        )
        inputs = component_inputs(request.identity, request.spec, origin, shared=request.shared)
        component = Component(COMPONENT_TYPE, request.identity.service, inputs)
        try:
            with self._engine.stack(request.stack).begun(component) as held:
                # Under the lock: a removal notes itself before it looks at the stack.
                if not held or self._engine.tombstones.withdrawn(request.stack, request.accepted_at):
                    return
                for kind, manifest in wanted.items():
                    resource = _KINDS[kind]
                    self._transport.json(
                        Call("patch", resource, request.identity.namespace, request.identity.service),
                        query={"fieldManager": origin.manager},
                        body={"apiVersion": resource.api_version, "kind": kind, **manifest},
                        accept=METADATA,
                        patch=APPLY_PATCH,
                    )
        except ProvisionerError as error:
            # The engine meets it too, and says what it is and whether it is tried again.
            log.info("no head start", stack_name=request.stack, reason=error.reason, error=error.message)
