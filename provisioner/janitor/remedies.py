"""What a person can do about a removal that keeps failing: from the error's reason to steps, a pure function."""

from __future__ import annotations

from provisioner.errors import ProvisionerError

_BY_REASON = {
    "DiskFull": "make room on the disk of the state backend",
    "Forbidden": "grant the janitor's account what the error names",
    "PassphraseUnavailable": "give the janitor the passphrase of the stacks' secrets",
    "StackLocked": "find out whether the lock's holder lives; delete the lock if it is gone for good",
    "StateUnreadable": "restore the checkpoint from a backup",
    "Timeout": "look at the API server: it does not answer in time",
    "Unauthorized": "renew the janitor's credentials",
    "Unreachable": "look at the API server and the network: it cannot be reached",
}


def recovery_steps(error: ProvisionerError, stack: str) -> tuple[str, ...]:
    """The steps, in order.

    Args:
        error: Why the last attempt failed.
        stack: Name of the stack.

    Example:
        >>> from provisioner.errors import TransientError
        >>> recovery_steps(TransientError("no", reason="Unreachable"), "store-a")[-1]
        'if it can never be removed: `provisioner gc forget store-a` drops its record and touches no cluster'
    """
    known = _BY_REASON.get(error.reason)
    steps = [known] if known else []
    if error.hint and error.hint != known:
        steps.append(error.hint)
    steps.append(f"if it can never be removed: `provisioner gc forget {stack}` drops its record and touches no cluster")
    return tuple(steps)
