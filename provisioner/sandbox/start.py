"""One run of `up`: in which order the parts of a sandbox are started, and what each waits for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

from provisioner.errors import TransientError
from provisioner.sandbox import bootstrap, credentials, hollow, mountpoints, network, node, planning, training
from provisioner.sandbox.binaries import path_of
from provisioner.sandbox.components import Component, Components
from provisioner.sandbox.images.busybox import builtin_archives
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.process import Processes
from provisioner.sandbox.runtime import Runtime
from provisioner.sandbox.state import Layout, Plan
from provisioner.sandbox.waiting import within


class Start:
    """One run of `up`, once the plan is made."""

    def __init__(
        self, layout: Layout, plan: Plan, machine: Machine, processes: Processes, progress: Callable[[str], None]
    ) -> None:
        self._layout = layout
        self._plan = plan
        self._processes = processes
        self._progress = progress
        self._machine = machine
        self._components = Components(layout, plan, machine, path_of)

    def run(self) -> None:
        """Start what is missing, wait until it works, remove what is too much."""
        credentials.ensure_credentials(self._layout, self._plan)
        components, plan = self._components, self._plan
        for name in planning.surplus(self._processes.names(), plan):
            self._progress(f"ending {name}")
            self._processes.stop(name, 0)
        if components.isolated:
            self._hold_namespaces()
        if plan.node:
            credentials.write_node_configuration(self._layout, plan, self._machine, path_of)
            self._ensure(components.runtime())
        else:
            network.remove_bridge(self._layout.bridge)
        store, server = components.store(), components.api_server()
        self._ensure(store)
        self._await(store)
        self._ensure(server)
        if plan.node:
            self._await(components.runtime())
            self._load_builtin_images()
        self._await(server)
        bootstrap.furnish(components.api())
        self._clients()
        if training.NAME in plan.additions:
            self._start_training_operator()

    def _clients(self) -> None:
        components, plan = self._components, self._plan
        clients = components.clients()
        for client in clients:
            self._ensure(client)
        if plan.hollow:
            self._start_hollow()
            clients += components.hollow_nodes()
        for client in clients:
            self._await(client)
        self._tidy_nodes()
        self._await_service_account()

    def _start_hollow(self) -> None:
        hollow.write_hosts(self._layout)
        self._ensure(self._components.hollow_init())
        holder = self._processes.record(hollow.INIT)
        if holder is None:
            raise TransientError(f"{hollow.INIT} is gone again", reason="StartFailed")
        self._ensure(self._components.hollow_relay(holder))
        for component in self._components.hollow_nodes():
            self._ensure(component)

    def _start_training_operator(self) -> None:
        api, component = self._components.api(), self._components.training_operator()
        training.furnish(api, self._layout, path_of(training.NAME).parent / "crds")
        training.tell_of_storage(api, self._layout)
        self._ensure(component)
        delivered = partial(training.deliver_certificates, api, self._layout)
        self._processes.await_ready(component.spec, delivered, component.timeout)
        self._await(component)

    def _hold_namespaces(self) -> None:
        node.write_kernel_settings(self._layout)
        for name in mountpoints.MOUNTPOINTS.values():
            (self._layout.root / name).mkdir(mode=0o755, exist_ok=True)
        if not self._processes.alive(node.INIT):
            self._processes.stop(node.INIT, 0)
            # As after a reboot: what containerd keeps about running containers is about processes that are gone.
            node.remove_cgroups(node.container_ids(self._layout))
            run = self._layout.root / mountpoints.MOUNTPOINTS["/run/containerd"]
            shutil.rmtree(run)
            run.mkdir(mode=0o755)
        with network.allocation():  # nobody may remove the mount points before something lies on them
            mountpoints.ensure_mountpoints()
            self._ensure(self._components.node_init())

    def _load_builtin_images(self) -> None:
        runtime = Runtime(self._layout, path_of)
        runtime.ensure_loaded(builtin_archives(path_of("busybox"), node.PAUSE_IMAGE))

    def _tidy_nodes(self) -> None:
        api = self._components.api()
        bootstrap.remove_nodes(api, self._components.node_names())
        hollow.correct_taints(api, self._plan)
        for path in planning.stale_files(self._layout, self._plan):
            path.unlink()

    def _await_service_account(self) -> None:
        # Without it the first pod of a user is refused.
        api = self._components.api()

        def there() -> bool:
            response = api.get("/api/v1/namespaces/default/serviceaccounts/default")
            return response is not None and response.status == 200

        if not within(30.0, there):
            raise TransientError("the default service account does not appear", reason="StartFailed")

    def _ensure(self, component: Component) -> None:
        if self._processes.ensure(component.spec):
            self._progress(f"started {component.spec.name}")

    def _await(self, component: Component) -> None:
        if not component.ready():
            self._progress(f"waiting for {component.spec.name}")
        self._processes.await_ready(component.spec, component.ready, component.timeout)
