"""The control plane and DNS as pure functions of a plan: identities, configuration files, command lines.

Every port is on loopback, every connection is TLS with certificates checked
at both ends. Each component has the user name that Kubernetes's own roles are
bound to; only the person with the kubeconfig is a superuser.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import yaml

from provisioner.sandbox.pki import Identity
from provisioner.sandbox.process import ProcessSpec
from provisioner.sandbox.state import Layout, Plan

Locate = Callable[[str], Path]

PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
DNS_PORT = "coredns-ready"
DOMAIN = "cluster.local"
TOKEN_FILE = "tokens.csv"  # noqa: S105 - the name of the file, not a token

_LOOPBACK = "127.0.0.1"
# The default of 20 calls a second starts the pods of a fleet one after the other.
_CLIENT_RATE = ("--kube-api-qps=300", "--kube-api-burst=500")


def etcd_identities() -> tuple[Identity, ...]:
    """Who may speak with etcd: itself and the API server."""
    return (
        Identity("etcd", "etcd", names=(_LOOPBACK, "localhost")),
        Identity("apiserver-etcd-client", "kube-apiserver"),
    )


def identities(plan: Plan) -> tuple[Identity, ...]:
    """Everybody of the control plane that the cluster's authority vouches for."""
    kubernetes = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}")
    return (
        Identity("kube-apiserver", "kube-apiserver", names=(_LOOPBACK, plan.api_address, "localhost", *kubernetes)),
        Identity("apiserver-kubelet-client", "sandbox:kube-apiserver"),
        Identity("kube-controller-manager", "system:kube-controller-manager", names=(_LOOPBACK, "localhost")),
        Identity("kube-scheduler", "system:kube-scheduler", names=(_LOOPBACK, "localhost")),
        Identity("coredns", "sandbox:coredns"),
    )


def kubeconfig(layout: Layout, plan: Plan, *, user: str, token: str = "", identity: str = "") -> str:
    """A kubeconfig that needs no other file.

    Args:
        layout: The sandbox.
        plan: Its plan.
        user: The name of the user entry.
        token: A bearer token, or "".
        identity: The name of a certificate in the sandbox, when there is no token.
    """

    def embedded(name: str) -> str:
        return base64.b64encode((layout.pki / name).read_bytes()).decode()

    name = f"sandbox-{plan.name}"
    credentials = {"token": token}
    if identity:
        credentials = {
            "client-certificate-data": embedded(f"{identity}.crt"),
            "client-key-data": embedded(f"{identity}.key"),
        }
    server = f"https://{_LOOPBACK}:{plan.ports['kube-apiserver']}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": embedded("ca.crt")}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def etcd(layout: Layout, plan: Plan, locate: Locate) -> ProcessSpec:
    """The store. Without fsync: a power cut may cost the sandbox, a killed process does not."""
    client = f"https://{_LOOPBACK}:{plan.ports['etcd']}"
    peer = f"https://{_LOOPBACK}:{plan.ports['etcd-peer']}"
    certificate, key, ca = (layout.pki / name for name in ("etcd.crt", "etcd.key", "etcd-ca.crt"))
    return ProcessSpec(
        name="etcd",
        argv=(
            str(locate("etcd")),
            "--name=sandbox",
            f"--data-dir={layout.root / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=sandbox={peer}",
            f"--cert-file={certificate}",
            f"--key-file={key}",
            f"--trusted-ca-file={ca}",
            "--client-cert-auth",
            f"--peer-cert-file={certificate}",
            f"--peer-key-file={key}",
            f"--peer-trusted-ca-file={ca}",
            "--peer-client-cert-auth",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ),
        files=(certificate, key, ca),
        port=plan.ports["etcd"],
    )


def apiserver(layout: Layout, plan: Plan, locate: Locate) -> ProcessSpec:
    """The API server: loopback only, nobody anonymous, kubelets verified."""
    pki, tokens = layout.pki, layout.config / TOKEN_FILE
    names = ("ca.crt", "kube-apiserver.crt", "kube-apiserver.key", "service-accounts.key", "service-accounts.pub")
    clients = ("apiserver-etcd-client", "apiserver-kubelet-client")
    client_files = tuple(pki / f"{client}.{suffix}" for client in clients for suffix in ("crt", "key"))
    return ProcessSpec(
        name="kube-apiserver",
        argv=(
            str(locate("kube-apiserver")),
            f"--bind-address={_LOOPBACK}",
            f"--secure-port={plan.ports['kube-apiserver']}",
            # Where pods find it; a loopback address is not accepted here.
            f"--advertise-address={plan.api_address}",
            f"--service-cluster-ip-range={plan.service_network}",
            f"--etcd-servers=https://{_LOOPBACK}:{plan.ports['etcd']}",
            f"--etcd-cafile={pki / 'etcd-ca.crt'}",
            f"--etcd-certfile={pki / 'apiserver-etcd-client.crt'}",
            f"--etcd-keyfile={pki / 'apiserver-etcd-client.key'}",
            f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
            f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
            "--anonymous-auth=false",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--token-auth-file={tokens}",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            f"--service-account-key-file={pki / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--profiling=false",
            # Else logs and exec look the node's name up in the machine's DNS.
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        ),
        files=(tokens, pki / "etcd-ca.crt", *(pki / name for name in names), *client_files),
        port=plan.ports["kube-apiserver"],
        # It would drain its watches for a minute; its clients reconnect.
        grace=3.0,
    )


def _manager(layout: Layout, plan: Plan, locate: Locate, name: str, *arguments: str) -> ProcessSpec:
    config = layout.config / f"{name}.kubeconfig"
    ca, certificate, key = (layout.pki / file for file in ("ca.crt", f"{name}.crt", f"{name}.key"))
    return ProcessSpec(
        name=name,
        argv=(
            str(locate(name)),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            # Who may ask is said here, not in a ConfigMap for servers that extend the API.
            "--authentication-skip-lookup=true",
            f"--authorization-kubeconfig={config}",
            f"--client-ca-file={ca}",
            f"--bind-address={_LOOPBACK}",
            f"--secure-port={plan.ports[name]}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            "--leader-elect=false",
            "--profiling=false",
            *_CLIENT_RATE,
            *arguments,
        ),
        files=(config, ca, certificate, key),
        port=plan.ports[name],
    )


def controller_manager(layout: Layout, plan: Plan, locate: Locate) -> ProcessSpec:
    """The controllers, with dynamic volumes in a folder of this machine."""
    ca, key = layout.pki / "ca.crt", layout.pki / "service-accounts.key"
    return _manager(
        layout,
        plan,
        locate,
        "kube-controller-manager",
        f"--service-account-private-key-file={key}",
        f"--root-ca-file={ca}",
        "--use-service-account-credentials=true",
        "--enable-hostpath-provisioner=true",
        # The default is a folder of the machine, which would be made.
        f"--flex-volume-plugin-dir={layout.root / 'volume-plugins'}",
    )


def scheduler(layout: Layout, plan: Plan, locate: Locate) -> ProcessSpec:
    """The scheduler."""
    return _manager(layout, plan, locate, "kube-scheduler")


def corefile(layout: Layout, plan: Plan) -> str:
    """CoreDNS's configuration: the cluster's names, and a plain "no" for all others."""
    cluster = [
        f"bind {plan.node_address}",
        "errors",
        f"ready {_LOOPBACK}:{plan.ports[DNS_PORT]}",
        f"kubernetes {DOMAIN} in-addr.arpa {{\n"
        f"        kubeconfig {layout.config / 'coredns.kubeconfig'} sandbox-{plan.name}\n"
        "        pods insecure\n"
        # A replica that is replaced gets another address; nobody may hold the old one for long.
        "        ttl 1\n"
        "    }",
    ]
    # Pods have no way out of the machine: a name elsewhere does not exist for them, and they learn it at once.
    elsewhere = [f"bind {plan.node_address}", "template ANY ANY {\n        rcode NXDOMAIN\n    }"]
    blocks = {f"{DOMAIN}:53 in-addr.arpa:53": cluster, ".:53": elsewhere}
    return "".join(
        f"{zones} {{\n" + "".join(f"    {directive}\n" for directive in directives) + "}\n"
        for zones, directives in blocks.items()
    )


def coredns(layout: Layout, locate: Locate) -> ProcessSpec:
    """DNS for pods, on the bridge's address."""
    config = layout.config / "Corefile"
    return ProcessSpec(
        name="coredns",
        argv=(str(locate("coredns")), "-conf", str(config)),
        files=(config, layout.config / "coredns.kubeconfig"),
        port=53,
    )
