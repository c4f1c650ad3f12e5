"""A real Kubernetes on this machine, several of them by name.

Why not a simulation: what goes wrong with data services (an image that cannot
be pulled, a crash loop, DNS names that do not resolve yet, a claim that does
not bind) goes wrong in kubelet, scheduler and controllers. So the sandbox runs
these: etcd, API server, controllers, scheduler, CoreDNS, and on Linux as root
a node of kubelet, containerd and runc, without a container engine or a
registry.

What it is not: pods have no way out of the machine, and Services with a
ClusterIP are not served (that is kube-proxy's work), except `kubernetes`
itself; headless Services work by DNS. Volumes are folders of this machine,
writable for root.
"""

from provisioner.sandbox.sandbox import Sandbox, list_sandboxes
from provisioner.sandbox.status import NodeStatus, ProcessStatus, SandboxStatus

__all__ = ["NodeStatus", "ProcessStatus", "Sandbox", "SandboxStatus", "list_sandboxes"]
