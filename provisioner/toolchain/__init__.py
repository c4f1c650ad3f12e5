"""Every binary that the engine and the sandbox need, found or provided.

A machine may have none of them and no way to a vendor's download; package
registries it can always reach. So each binary is taken from where it is
cheapest: PATH, our cache, an official installer, a build from its Go module,
a Debian package. `locate` finds, `status` tells, `install` provides.
"""

from provisioner.toolchain.installer import install
from provisioner.toolchain.pins import DEFAULT_GROUPS, Group
from provisioner.toolchain.progress import Progress, Step
from provisioner.toolchain.state import Binary, Condition, State
from provisioner.toolchain.survey import environment, locate, pulumi_home, status

__all__ = [
    "DEFAULT_GROUPS",
    "Binary",
    "Condition",
    "Group",
    "Progress",
    "State",
    "Step",
    "environment",
    "install",
    "locate",
    "pulumi_home",
    "status",
]
