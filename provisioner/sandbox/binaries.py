"""Where the sandbox's programs come from: the toolchain, asked in one place."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from provisioner import toolchain


@cache
def path_of(name: str) -> Path:
    """The absolute path of a program of the toolchain.

    Args:
        name: For example `kube-apiserver`.

    Raises:
        ProvisionerError: It is not there; the hint says how to get it.
    """
    return toolchain.locate(name).path
