"""Claims that a service's retention policy keeps, deleted when somebody says so."""

from __future__ import annotations

from provisioner.cluster.live import LiveObjects
from provisioner.identity import Identity


def delete_volumes(live: LiveObjects, identity: Identity) -> tuple[str, ...]:
    """Ask for the deletion of all claims of a service; call again until none is left.

    Args:
        live: The cluster.
        identity: The service, which must be gone.

    Returns:
        The claims that are still there.
    """
    claims = live.claims(identity)
    for claim in claims:
        live.delete_claim(identity.namespace, claim)
    return tuple(claim.name for claim in claims)
