"""`Sandbox`: a real Kubernetes on this machine, by name.

Everything is level-triggered: `up` looks at what is there and makes what is
missing, so the first start, a repair after a kill or a reboot, a change of
the number of nodes and a renewal of certificates are the same code. `down`
relies on nothing that a crash could have kept from being written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from provisioner.errors import PermanentError, ProvisionerError, RefusedError
from provisioner.sandbox import mountpoints, network, node, planning
from provisioner.sandbox.binaries import path_of
from provisioner.sandbox.components import programs
from provisioner.sandbox.images.archive import image_names
from provisioner.sandbox.machine import look
from provisioner.sandbox.planning import Wish
from provisioner.sandbox.process import Processes
from provisioner.sandbox.runtime import Runtime
from provisioner.sandbox.start import Start
from provisioner.sandbox.state import Layout, Plan, layouts, sandboxes_home
from provisioner.sandbox.status import SandboxStatus, observe

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    """Say nothing."""


class Sandbox:
    """A local cluster.

    Args:
        name: At most 32 of a-z, 0-9 and `-`.
        home: The folder of all sandboxes; the user's state folder by default.

    Raises:
        UsageError: The name is not accepted.

    Example:
        >>> Sandbox("dev").context
        'sandbox-dev'
    """

    def __init__(self, name: str = "default", *, home: Path | None = None) -> None:
        self._layout = Layout(name, home or sandboxes_home())
        self._processes = Processes(self._layout.records, self._layout.logs)

    @property
    def name(self) -> str:
        """The sandbox's name."""
        return self._layout.name

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file; it exists once the sandbox does."""
        return self._layout.kubeconfig

    @property
    def context(self) -> str:
        """The context in the kubeconfig."""
        return f"sandbox-{self.name}"

    def existing_kubeconfig(self) -> Path:
        """The kubeconfig file of a sandbox that has been started.

        Raises:
            PermanentError: There is no such sandbox.
        """
        self._existing_plan()
        return self.kubeconfig

    def _existing_plan(self) -> Plan:
        plan = self._layout.load()
        if plan is None:
            raise PermanentError(
                f"there is no sandbox {self.name!r}",
                reason="NoSuchSandbox",
                hint=f"start it: provisioner sandbox up --name {self.name}",
            )
        return plan

    def up(
        self,
        *,
        node: bool | None = None,
        hollow: int | None = None,
        additions: Sequence[str] = (),
        without: Sequence[str] = (),
        progress: Progress = _silent,
    ) -> SandboxStatus:
        """Start the sandbox, repair it, or change what it consists of. Idempotent.

        Args:
            node: Whether there shall be a real node; None keeps what is, and
                starts with one where the machine allows.
            hollow: How many hollow nodes; None keeps what is.
            additions: What shall run beside the cluster as well: `training-operator`.
            without: What shall run beside it no longer; its kinds and objects stay.
            progress: Told what is being done, one line at a time.

        Returns:
            The status, which is ready.

        Raises:
            UsageError: What is asked is not possible on this machine.
            RefusedError: Another process is busy with the sandbox.
            TransientError: A process did not start; the message has its last words.
            PermanentError: A program is missing, or the machine refuses something.
        """
        machine = look()
        with self._layout.lock():
            former = self._layout.load()
            wish = Wish(node, hollow, tuple(additions), tuple(without))
            nodes, beside = (
                planning.decide_nodes(former, wish, machine),
                planning.decide_additions(former, wish, machine),
            )
            if nodes.note:
                progress(nodes.note)
            for program in programs(node=nodes.node, hollow=nodes.hollow, additions=beside):
                path_of(program)  # before anything is started, since a half-started sandbox helps nobody
            self._layout.make()
            isolated = machine.root and machine.may_isolate
            with network.allocation():
                plan = planning.make_plan(
                    self._layout, former, nodes, beside, isolated=isolated, running=self._processes.alive
                )
                self._layout.save(plan)
                if plan.node:
                    network.ensure_bridge(self._layout.bridge, plan)
            Start(self._layout, plan, machine, self._processes, progress).run()
            return observe(self._layout, plan, machine, self._processes)

    def down(self, *, progress: Progress = _silent) -> bool:
        """End everything that the sandbox has started and delete its state. Idempotent.

        Args:
            progress: Told what is being done.

        Returns:
            Whether there was anything of it.

        Raises:
            RefusedError: Another process is busy with the sandbox, or something
                is still mounted in its folder.
            TransientError: A process cannot be ended.
        """
        if not self._layout.exists():
            return False
        with self._layout.lock():
            if not self._layout.exists():
                return False
            progress(f"ending the processes of sandbox {self.name}")
            ids = node.container_ids(self._layout)
            self._processes.kill_all()
            node.remove_cgroups(ids)
            network.remove_bridge(self._layout.bridge)
            progress("deleting its state")
            self._delete()
            with network.allocation():
                mountpoints.remove_mountpoints()
        return True

    def _delete(self) -> None:
        root = str(self._layout.root)
        # Nothing of ours is mounted outside our namespaces; whatever is mounted here is somebody's data.
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            point = line.split()[4]
            if point == root or point.startswith(root + "/"):
                raise RefusedError(f"{point} is a mount point", reason="Mounted", hint=f"umount {point}")
        shutil.rmtree(root)

    def status(self) -> SandboxStatus:
        """What is there now, without changing it.

        Raises:
            PermanentError: There is no such sandbox.
        """
        return observe(self._layout, self._existing_plan(), look(), self._processes)

    def load_image(self, path: Path) -> list[str]:
        """Import an image archive, so that pods can use it.

        Args:
            path: A Docker archive or a tar of an OCI image layout.

        Returns:
            The full names of the images.

        Raises:
            UsageError: The file is not an image archive.
            PermanentError: The sandbox does not run, has no real node, or
                containerd refuses the image.
        """
        names = image_names(path)
        if not self._existing_plan().node or not self._processes.alive("containerd"):
            raise PermanentError(
                f"sandbox {self.name!r} has no running node to load an image into",
                reason="NoNode",
                hint=f"provisioner sandbox up --name {self.name}",
            )
        Runtime(self._layout, path_of).load(path, names)
        return names


def list_sandboxes(home: Path | None = None) -> list[SandboxStatus]:
    """The status of every sandbox, by name.

    Args:
        home: The folder of all sandboxes; the user's state folder by default.
    """
    found = []
    for layout in layouts(home or sandboxes_home()):
        try:
            found.append(Sandbox(layout.name, home=layout.home).status())
        except ProvisionerError as error:
            found.append(SandboxStatus.broken(layout, error.message))
    return found
