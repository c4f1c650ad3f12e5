"""Folders of the machine that a node's programs insist on, lent for a while.

containerd's shims, the CNI library, kubelet and the volume provisioner have
some paths built in. A sandbox shows its own folders at these paths inside its
mount namespace, so that neither another sandbox nor a container runtime of
the machine ever sees them; but a mount needs a folder to lie on. A folder
that is missing is made and marked with an empty file, and goes again with the
last sandbox of the machine that lies on it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from provisioner.errors import RefusedError

MOUNTPOINTS = {
    "/run/containerd": "run-containerd",
    "/var/lib/cni": "cni",
    "/var/lib/kubelet": "kubelet",
    "/var/log/containers": "container-links",
    "/tmp/hostpath_pv": "volumes",  # noqa: S108 - built into kube-controller-manager; checked below
}
"""Path on the machine -> name of our folder that is shown there."""

MARK = ".data-service-provisioner"


def ensure_mountpoints() -> None:
    """Make the folders that are missing.

    Raises:
        RefusedError: One is in somebody else's hands.
    """
    for name in MOUNTPOINTS:
        path = Path(name)
        try:
            path.mkdir(mode=0o755)
            (path / MARK).touch(mode=0o600)
        except FileExistsError:
            facts = path.lstat()
            foreign = facts.st_uid != 0 or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if foreign or not stat.S_ISDIR(facts.st_mode):
                raise RefusedError(
                    f"{path} is not a folder of root that only root may write to",
                    reason="ForeignFolder",
                    hint=f"remove {path} or correct its owner and mode",
                ) from None


def _mounted_on() -> set[str]:
    """The mount points of every process of the machine."""
    seen: set[str] = set()
    found: set[str] = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            namespace = str((process / "ns" / "mnt").readlink())
            if namespace in seen:
                continue
            lines = (process / "mountinfo").read_text().splitlines()
        except OSError:  # it has just ended, or is a kernel's own
            continue
        seen.add(namespace)
        found |= {line.split()[4] for line in lines}
    return found


def remove_mountpoints() -> None:
    """Remove the folders that we made, unless another sandbox lies on them or somebody has put something there."""
    marked = [Path(name) for name in MOUNTPOINTS if (Path(name) / MARK).is_file() and os.access(name, os.W_OK)]
    if not marked:
        return
    busy = _mounted_on()
    for path in marked:
        # Removing a folder takes away the mounts that lie on it in other namespaces.
        if str(path) not in busy and [item.name for item in path.iterdir()] == [MARK]:
            (path / MARK).unlink()
            path.rmdir()
