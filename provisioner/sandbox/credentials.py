"""Write everything that a sandbox's components read: keys, certificates, kubeconfigs, configuration.

All of it follows from the plan. It is written again on each `up`, so a lost
file is back and an expiring certificate is renewed; whoever reads a file that
has changed is restarted, because his fingerprint has changed as well.
"""

from __future__ import annotations

import datetime
import secrets

from provisioner.sandbox import controlplane, hollow, node, training
from provisioner.sandbox.controlplane import Locate, kubeconfig
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.pki import Authority, ensure_signing_key, write_private
from provisioner.sandbox.state import Layout, Plan

ADMINISTRATOR = "sandbox-admin"


def read_token(layout: Layout) -> str:
    """The administrator's token; "" when there is none."""
    path = layout.config / controlplane.TOKEN_FILE
    return path.read_text().split(",")[0] if path.exists() else ""


def ensure_credentials(layout: Layout, plan: Plan) -> None:
    """Make or renew keys and certificates, and the kubeconfigs made of them."""
    now = datetime.datetime.now(datetime.UTC)
    store = Authority(layout.pki, "etcd-ca", now)
    for identity in controlplane.etcd_identities():
        store.ensure(identity)
    cluster = Authority(layout.pki, "ca", now)
    clients = ["kube-controller-manager", "kube-scheduler"]
    identities = [*controlplane.identities(plan), *hollow.identities(plan)]
    if plan.node:
        identities.append(node.identity(plan))
        clients += ["coredns", "kubelet"]
    if training.NAME in plan.additions:
        identities.append(training.identity())
        clients.append(training.NAME)
    for identity in identities:
        cluster.ensure(identity)
    ensure_signing_key(layout.pki / "service-accounts.key")
    token = read_token(layout) or secrets.token_urlsafe(32)
    users = f"{token},{ADMINISTRATOR},{ADMINISTRATOR},system:masters\n"
    write_private(layout.config / controlplane.TOKEN_FILE, users.encode())
    clients += [hollow.name(number) for number in range(1, plan.hollow + 1)]
    for client in clients:
        text = kubeconfig(layout, plan, user=client, identity=client)
        write_private(layout.config / f"{client}.kubeconfig", text.encode())
    text = kubeconfig(layout, plan, user=f"sandbox-{plan.name}", token=token)
    write_private(layout.kubeconfig, text.encode())


def write_node_configuration(layout: Layout, plan: Plan, machine: Machine, locate: Locate) -> None:
    """Write what kubelet, containerd, the pods' network and DNS are configured with."""
    (layout.config / "cni").mkdir(mode=0o700, exist_ok=True)
    texts = {
        "containerd.toml": node.containerd_config(layout, machine, locate),
        "cni/10-bridge.conflist": node.cni_config(layout, plan),
        "kubelet.yaml": node.kubelet_config(layout, plan, machine),
        "Corefile": controlplane.corefile(layout, plan),
    }
    for name, text in texts.items():
        write_private(layout.config / name, text.encode())
