"""What this machine allows: looked up once, judged by a pure function.

A real node needs root, a handful of kernel features and tools; how it must be
configured depends on the cgroup version and on the capabilities that a
container host may have taken from root.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

# <linux/capability.h>
_CAP_NET_ADMIN, _CAP_SYS_ADMIN, _CAP_SYS_RESOURCE = 12, 21, 24
_TOOLS = ("ip", "mount")


@dataclass(frozen=True)
class Machine:
    """The facts that decide how a node is run.

    Attributes:
        system: The kernel's name, for example `Linux`.
        root: Whether we are user 0.
        capabilities: The effective capabilities, as a bit mask.
        cgroup_v2: Whether the unified hierarchy alone is mounted.
        missing_tools: Programs that a node needs and that are not on PATH.
        user_namespaces: Whether a user who is not root may make namespaces.
    """

    system: str
    root: bool
    capabilities: int
    cgroup_v2: bool
    missing_tools: tuple[str, ...] = ()
    user_namespaces: bool = False

    @property
    def may_lower_oom_score(self) -> bool:
        """Whether CAP_SYS_RESOURCE is ours."""
        return bool(self.capabilities >> _CAP_SYS_RESOURCE & 1)

    @property
    def may_isolate(self) -> bool:
        """Whether processes can be put into namespaces."""
        if self.system != "Linux":
            return False
        return bool(self.capabilities >> _CAP_SYS_ADMIN & 1) if self.root else self.user_namespaces


def node_obstacle(machine: Machine) -> str:
    """Why a real node cannot run on this machine, or "" when it can."""
    if not machine.root:
        return "a real node needs root"
    for bit, name in ((_CAP_SYS_ADMIN, "CAP_SYS_ADMIN"), (_CAP_NET_ADMIN, "CAP_NET_ADMIN")):
        if not machine.capabilities >> bit & 1:
            return f"a real node needs the capability {name}, which this container does not have"
    if machine.missing_tools:
        return f"a real node needs these programs on PATH: {', '.join(machine.missing_tools)}"
    return ""


def look() -> Machine:
    """Look at this machine."""
    system = platform.system()
    capabilities = 0
    if system == "Linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                capabilities = int(line.split()[1], 16)
    # On a hybrid host this file is one level deeper (/sys/fs/cgroup/unified) and the controllers are version 1.
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    missing = tuple(tool for tool in _TOOLS if shutil.which(tool) is None)
    return Machine(system, os.getuid() == 0, capabilities, unified, missing, _user_namespaces(system))


def _user_namespaces(system: str) -> bool:
    if system != "Linux":
        return False
    for name, refused in (
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ):
        path = Path("/proc/sys") / name
        if path.exists() and path.read_text().strip() == refused:
            return False
    return True
