"""The control of one server of several on one backend: it gives a sign of life, and clears what dead ones left.

Any of them answers any call, since a call brings all that is needed. What
keeps two from harming each other is the engine's lock of each stack; what
keeps a lock from outliving its holder is here.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from typing import Self

import structlog

from provisioner.cluster import ClusterClient
from provisioner.control.controller import Controller
from provisioner.control.heartbeat import Heartbeat
from provisioner.control.holders import LeaseHolders
from provisioner.engine import Engine
from provisioner.engine.host import load_provider_sdk
from provisioner.errors import ProvisionerError
from provisioner.settings import Settings

_log = structlog.get_logger(__name__)


class Replica(Controller):
    """The controller of one server; made by `from_settings`."""

    _engine: Engine
    _heartbeat: Heartbeat

    @classmethod
    def from_settings(cls, settings: Settings, namespaces: Sequence[str] = ()) -> Self:
        """A server's controller over the real engine and the real cluster.

        Args:
            settings: Which.
            namespaces: Where its services are; by default those of the settings.

        Raises:
            UsageError: The settings hold a grace that is none.
        """
        client = ClusterClient(settings)
        leases = settings.lease_namespace
        heartbeat = Heartbeat(
            client,
            leases,
            # Cancelled operations must have ended before others count this host as dead.
            seconds=max(settings.heartbeat, 3 * settings.cancel_grace),
            grace=settings.cancel_grace,
            lost=lambda: made._workers.cancel_running(),
        )
        engine = Engine(settings, holder_alive=LeaseHolders(client, leases).alive)
        made = cls.assembled(settings, namespaces, client, engine, heartbeat.require)
        made._engine, made._heartbeat = engine, heartbeat
        return made

    def start(self) -> None:
        """Give the first sign of life, and start the watch and the workers."""
        self._heartbeat.start()
        super().start()
        load_provider_sdk()
        # The SDK's classes stay for ever, and to look through all of them again and again holds up every call.
        gc.collect()
        gc.freeze()
        threading.Thread(target=self._unlock, name="unlock", daemon=True).start()

    def stop(self, timeout: float) -> bool:
        """Let running operations finish, then cancel them.

        Args:
            timeout: Seconds in all.

        Returns:
            Whether all had ended, so that no lock is left.
        """
        clean = super().stop(timeout)
        self._heartbeat.stop(clean=clean)
        return clean

    def _unlock(self) -> None:
        """Clear what an earlier process on this host left: others see this host alive, and would not."""
        try:
            for stack in self._engine.state.locked():
                try:
                    self._engine.stack(stack).unlock()
                except ProvisionerError as error:
                    _log.debug("a lock stays", stack_name=stack, error=error.message)
        except ProvisionerError as error:
            _log.warning("locks that were left could not be looked at", error=error.message)
