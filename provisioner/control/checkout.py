"""A service's stack as plain `pulumi` sees it: the stack's file, and the environment to use it in.

The file holds what the connector or the command line holds in memory, so that
`pulumi preview --stack STACK` of the repository's own program shows no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import yaml

from provisioner.control.recorded import Recorded, recorded_origin
from provisioner.engine import PROJECT, Checkpoint
from provisioner.errors import PermanentError


def stack_file(checkpoint: Checkpoint, record: Recorded) -> str:
    """The content of `Pulumi.STACK.yaml`.

    Args:
        checkpoint: The stack's.
        record: What was asked for.

    Raises:
        PermanentError: The checkpoint does not say how its secrets are kept.
    """
    return yaml.safe_dump(
        {
            **_secrets_provider(checkpoint),
            "config": {
                f"{PROJECT}:identity": asdict(record.identity),
                f"{PROJECT}:origin": asdict(recorded_origin(checkpoint)),
                f"{PROJECT}:spec": record.spec.document(),
            },
        },
        sort_keys=False,
        allow_unicode=True,
    )


def _secrets_provider(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """What `pulumi` needs to open the stack's secrets, as it writes it into a stack's file itself."""
    provider = checkpoint.deployment.get("secrets_providers") or {}
    state = provider.get("state") or {}
    if provider.get("type") == "passphrase" and "salt" in state:
        return {"encryptionsalt": state["salt"]}
    if provider.get("type") == "cloud" and "url" in state:
        return {"secretsprovider": state["url"], "encryptedkey": state.get("encryptedkey")}
    if provider.get("type") == "service":
        return {}
    raise PermanentError(
        f"checkpoint of stack {checkpoint.stack} does not say how its secrets are kept",
        reason="SecretsProviderUnknown",
        hint="apply the service once more, then check it out",
    )
