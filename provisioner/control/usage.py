"""Who uses a service: taken, given back, and asked for before a service is removed, at the API server itself.

A user and a removal may meet at any moment, in different servers. So each
writes before it looks: a removal marks the StatefulSet and then lists the
Leases, a user takes its Lease and then looks for the mark. Whichever of the
two comes second sees the other, and a service that a user was told of never
goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import structlog

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import STATEFULSETS, Call
from provisioner.cluster.leases import UserLeases, micro_time
from provisioner.cluster.parse import mapping, stack_of, text, time
from provisioner.cluster.transport import NotFoundError
from provisioner.errors import PermanentError
from provisioner.identity import ANNOTATION_CLOSING, ANNOTATION_USERS, USERS_LEASE, Identity, User
from provisioner.settings import Settings

log = structlog.get_logger(__name__)


class Hold(StrEnum):
    """What became of a user's wish to use a service."""

    HELD = "Held"
    CLOSING = "Closing"


class Usage:
    """Leases and marks of services.

    Args:
        client: The cluster.
        settings: How long a Lease counts, and how long a removal may take.
        now: The time, with its zone.
    """

    def __init__(
        self, client: ClusterClient, settings: Settings, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._transport = client.transport
        self._leases = UserLeases(client.transport)
        self._seconds = settings.user_lease
        # A removal that has not ended after this time was killed; it is begun anew by whoever asks next.
        self._abandoned = timedelta(seconds=2 * settings.operation_timeout)
        self._now = now

    def take(self, identity: Identity, user: User) -> Hold:
        """Take or renew a user's Lease, and see whether the service is on its way out.

        Args:
            identity: The service; it need not exist yet.
            user: Who uses it.

        Raises:
            ProvisionerError: The Lease is not taken.
        """
        now = self._now()
        self._leases.take(identity.stack, identity.namespace, user.holder, seconds=self._seconds, now=now)
        found = self._statefulset(identity)
        if found is None:
            return Hold.HELD
        metadata = mapping(found, "metadata")
        if "deletionTimestamp" in metadata:
            return Hold.CLOSING
        closing = time(mapping(metadata, "annotations"), ANNOTATION_CLOSING)
        if closing is None:
            return Hold.HELD
        if self._now() - closing < self._abandoned:
            return Hold.CLOSING
        self._annotate(identity, metadata, {ANNOTATION_CLOSING: None})
        return Hold.HELD

    def give_back(self, identity: Identity, user: User, *, whole_execution: bool = False) -> bool:
        """Give a user's Lease back; it need not exist.

        Args:
            identity: The service.
            user: Who used it.
            whole_execution: Also what the other nodes of its execution hold.

        Returns:
            Whether the service belongs to its users alone, so that the last of them ends it.
        """
        self._leases.give_back(identity.stack, identity.namespace, user.holder)
        if whole_execution:
            for lease in self._leases.of(identity.stack, identity.namespace):
                if f"{lease.holder}:".startswith(f"{user.of_execution}:"):
                    self._leases.give_back(identity.stack, identity.namespace, lease.holder)
        annotations = mapping(mapping(self._statefulset(identity), "metadata"), "annotations")
        return annotations.get(ANNOTATION_USERS) == USERS_LEASE

    def close(self, identity: Identity) -> tuple[str, ...]:
        """Mark a service as on its way out, unless somebody uses it.

        A service that stays is marked as its users' own from now on: whoever
        made it wants it no more, so it goes with the last of them.

        Args:
            identity: The service.

        Returns:
            Who uses it; empty when it may go.
        """
        found = self._statefulset(identity)
        metadata = mapping(found, "metadata")
        if found is not None:
            self._annotate(identity, metadata, {ANNOTATION_CLOSING: micro_time(self._now())})
        users = self._users(identity)
        if users and found is not None:
            self._annotate(identity, metadata, {ANNOTATION_CLOSING: None, ANNOTATION_USERS: USERS_LEASE})
        return users

    def _users(self, identity: Identity) -> tuple[str, ...]:
        try:
            leases = self._leases.of(identity.stack, identity.namespace)
        except PermanentError as error:
            if error.reason != "Forbidden":
                raise
            # Who may not read Leases has given none out.
            return ()
        return tuple(sorted(lease.holder or lease.name for lease in leases if lease.held(self._now())))

    def _statefulset(self, identity: Identity) -> Mapping[str, Any] | None:
        try:
            found = self._transport.json(Call("get", STATEFULSETS, identity.namespace, identity.service))
        except NotFoundError:
            return None
        return found if stack_of(mapping(found, "metadata")) == identity.stack else None

    def _annotate(self, identity: Identity, metadata: Mapping[str, Any], annotations: Mapping[str, str | None]) -> None:
        # With its uid, so that one of the same name that came later is left alone.
        body = {"metadata": {"uid": text(metadata, "uid"), "annotations": dict(annotations)}}
        try:
            self._transport.json(Call("patch", STATEFULSETS, identity.namespace, identity.service), body=body)
        except NotFoundError:
            log.info("it went meanwhile", stack_name=identity.stack)
