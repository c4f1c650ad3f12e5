"""The real node: kubelet, containerd and runc in namespaces of their own.

All of it lives in one PID and one mount namespace, whose first process does
nothing but hold them. Ending that process ends every process inside (pods,
shims, kubelet, whatever has gone astray) and takes every mount along, so
`down` needs no list of what the node has made, even after a crash. The
network is the machine's own, with a bridge for the pods.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from provisioner.sandbox.controlplane import DOMAIN, Locate
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.mountpoints import MOUNTPOINTS
from provisioner.sandbox.pki import Identity
from provisioner.sandbox.process import Mount, Namespaces, ProcessSpec
from provisioner.sandbox.state import Layout, Plan
from provisioner.sandbox.waiting import within

NODE_NAME = "node-1"
INIT = "node-init"
PORTS = ("kubelet", "kubelet-healthz")
PAUSE_IMAGE = "localhost/pause:sandbox"

# What kubelet sets for the whole machine at its start (setupKernelTunables). In its namespace it finds them set.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def identity(plan: Plan) -> Identity:
    """The node's own name, for its client and its server side."""
    return Identity("kubelet", f"system:node:{NODE_NAME}", "system:nodes", names=(plan.node_address, NODE_NAME))


def init(layout: Layout, locate: Locate) -> ProcessSpec:
    """The process that holds the namespaces; it reaps what is orphaned in them."""
    settings = layout.config / "kernel-settings"
    mounts = [Mount("bind", path, str(layout.root / name)) for path, name in MOUNTPOINTS.items()]
    mounts.append(Mount("proc", "/proc"))
    mounts += [Mount("bind", f"/proc/sys/{name}", str(settings / name.replace("/", "."))) for name in _KERNEL_SETTINGS]
    busybox = str(locate("busybox"))
    return ProcessSpec(
        name=INIT,
        argv=(busybox, "sh", "-c", f"{busybox} sleep 2147483647 & wait"),
        namespaces=Namespaces(("pid", "mnt"), mounts=tuple(mounts)),
        grace=0,
    )


def write_kernel_settings(layout: Layout) -> None:
    """Write the files that stand in for the machine's settings inside the namespace."""
    folder = layout.config / "kernel-settings"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, value in _KERNEL_SETTINGS.items():
        (folder / name.replace("/", ".")).write_text(f"{value}\n")


def containerd_config(layout: Layout, machine: Machine, locate: Locate) -> str:
    """The configuration of containerd: everything of its own, nothing of the machine's."""

    def quoted(value: object) -> str:
        return json.dumps(str(value))

    cri = '[plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = {quoted(layout.root / "containerd")}
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = {quoted(layout.root / "containerd" / "opt")}
{cri}]
sandbox_image = {quoted(PAUSE_IMAGE)}
stream_server_address = "127.0.0.1"
netns_mounts_under_state_dir = true
restrict_oom_score_adj = {json.dumps(not machine.may_lower_oom_score)}
{cri}.cni]
bin_dir = {quoted(locate("bridge").parent)}
conf_dir = {quoted(layout.config / "cni")}
{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.runc.options]
BinaryName = {quoted(locate("runc"))}
"""


def cni_config(layout: Layout, plan: Plan) -> str:
    """The pods' network. The bridge is ours already: were it the plugin's, it would switch on packet forwarding."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(plan.pod_network), "gateway": plan.node_address}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/var/lib/cni/networks",
    }
    bridge = {"type": "bridge", "bridge": layout.bridge, "isGateway": False, "ipMasq": False, "ipam": ipam}
    return json.dumps({"cniVersion": "0.4.0", "name": f"sandbox-{plan.name}", "plugins": [bridge]}, indent=2)


def kubelet_config(layout: Layout, plan: Plan, machine: Machine) -> str:
    """The configuration of kubelet."""
    pki = layout.pki
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": plan.node_address,
        "port": plan.ports["kubelet"],
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": plan.ports["kubelet-healthz"],
        "tlsCertFile": str(pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "podLogsDir": "/var/lib/kubelet/pod-logs",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "clusterDNS": [plan.node_address],
        "clusterDomain": DOMAIN,
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "protectKernelDefaults": True,
        # Two kubelets with cgroups for pods would each remove the other's as orphans; containers keep their limits.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": machine.cgroup_v2,
        "maxPods": 500,
        # A developer's disk is full more often than not, and an image that is collected cannot be pulled again.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # One image that cannot be pulled must not keep the others waiting.
        "serializeImagePulls": False,
        "syncFrequency": "1s",
    }
    if not machine.cgroup_v2:
        config["failCgroupV1"] = False
    if not machine.may_lower_oom_score:
        config["oomScoreAdj"] = 0
    return yaml.safe_dump(config, sort_keys=False)


def containerd(layout: Layout, locate: Locate) -> ProcessSpec:
    """The container runtime."""
    program, config = locate("containerd"), layout.config / "containerd.toml"
    folders = {str(path.parent) for path in (program, locate("containerd-shim-runc-v2"), locate("runc"))}
    return ProcessSpec(
        name="containerd",
        argv=(str(program), f"--config={config}"),
        files=(config, layout.config / "cni" / "10-bridge.conflist"),
        environment={"PATH": ":".join([*sorted(folders), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])},
        namespaces=Namespaces(("pid", "mnt"), of=INIT),
    )


def kubelet(layout: Layout, plan: Plan, locate: Locate) -> ProcessSpec:
    """The node's agent."""
    config, kubeconfig, pki = layout.config / "kubelet.yaml", layout.config / "kubelet.kubeconfig", layout.pki
    return ProcessSpec(
        name="kubelet",
        argv=(
            str(locate("kubelet")),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={plan.node_address}",
            "--root-dir=/var/lib/kubelet",
        ),
        files=(config, kubeconfig, pki / "kubelet.crt", pki / "kubelet.key", pki / "ca.crt"),
        namespaces=Namespaces(("pid", "mnt"), of=INIT),
        port=plan.ports["kubelet"],
    )


def cgroup_folders(ids: list[str]) -> list[Path]:
    """The control groups that containers of ours have, or had, in every hierarchy.

    Args:
        ids: The containers' ids.
    """
    roots = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            roots.append(Path(left.split()[4]))
    folders = [root / "k8s.io" / name for root in roots for name in ids]
    return [folder for folder in folders if folder.is_dir()]


def container_ids(layout: Layout) -> list[str]:
    """The ids of all containers that containerd had on record when it last ran."""
    tasks = layout.root / MOUNTPOINTS["/run/containerd"] / "io.containerd.runtime.v2.task" / "k8s.io"
    return [path.name for path in tasks.iterdir()] if tasks.is_dir() else []


def remove_cgroups(ids: list[str]) -> None:
    """Remove the control groups of containers whose processes have ended.

    Args:
        ids: The containers' ids.
    """
    for folder in cgroup_folders(ids):
        inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
        for path in [*inner, folder]:
            # The kernel lets go of a group a little after its last process.
            within(2.0, lambda path=path: _removed(path))  # type: ignore[misc]
        _removed(folder.parent)


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
