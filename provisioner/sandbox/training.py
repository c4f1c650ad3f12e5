"""The Kubeflow training operator beside a sandbox: TFJob, PyTorchJob and MPIJob, as training jobs use them.

It runs as a process like the control plane. Made for a pod, it expects its
webhook's certificate in a fixed folder below /tmp, where kubelet would mount
the Secret that it fills itself. Here it gets a /tmp of its own, with a folder
of the sandbox at that place, and the Secret's content is written there.

The webhook server is the one port of a sandbox that is open on every address:
the operator has no flag for it. Nobody calls it, and it would do no more than
judge the document that it is sent.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from pathlib import Path
from typing import Any

import yaml

from provisioner.errors import TransientError
from provisioner.sandbox.api import Api
from provisioner.sandbox.bootstrap import role_objects
from provisioner.sandbox.controlplane import Locate
from provisioner.sandbox.hollow import private_tmp
from provisioner.sandbox.images.busybox import BUSYBOX_IMAGE
from provisioner.sandbox.machine import Machine
from provisioner.sandbox.pki import Identity, write_private
from provisioner.sandbox.process import Mount, Namespaces, ProcessSpec
from provisioner.sandbox.state import Layout, Plan
from provisioner.sandbox.waiting import within

NAME = "training-operator"
PORTS = (NAME, f"{NAME}-metrics", f"{NAME}-webhook")
KINDS = ("tfjob", "pytorchjob", "mpijob")
# For the containers that the operator adds: one of a PyTorchJob's worker looks the master's name up, one of an
# MPIJob's launcher would bring kubectl along. Without that, a launcher reaches its workers by other means than
# `kubectl exec`: the names in its host file.
_INIT_IMAGE = BUSYBOX_IMAGE
_NAMESPACE = "kubeflow"
_SECRET = f"/api/v1/namespaces/{_NAMESPACE}/secrets/{NAME}-webhook-cert"
# Built into the operator.
_CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - in a /tmp of its own
_CERTIFICATE_FILES = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SOURCE = "provisioner/source"
_STORAGE = "ephemeral-storage"
_USER = f"sandbox:{NAME}"

_ALL = ["get", "list", "watch", "create", "update", "patch", "delete"]
_RULES: list[dict[str, Any]] = [
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "events", "secrets", "serviceaccounts"],
        "verbs": _ALL,
    },
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": _ALL},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": _ALL},
    # An MPIJob's launcher is given a role of its own, with no more than the operator may do.
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": _ALL},
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingwebhookconfigurations"],
        "verbs": ["get", "list", "watch", "update"],
    },
]


def identity() -> Identity:
    """Who it is to the API server."""
    return Identity(NAME, _USER)


def obstacle(machine: Machine) -> str:
    """Why this machine cannot run it, or ""."""
    if machine.root or machine.may_isolate:
        return ""
    return "the training operator needs root or user namespaces, for a /tmp of its own"


def _folder(layout: Layout) -> Path:
    return layout.root / f"{NAME}-certificates"


def process(layout: Layout, plan: Plan, machine: Machine, locate: Locate) -> ProcessSpec:
    """The operator.

    Args:
        layout: The sandbox.
        plan: Its plan.
        machine: What the machine allows.
        locate: Name of a program -> its path.
    """
    program, config = locate(NAME), layout.config / f"{NAME}.kubeconfig"
    certificates = Mount("bind", _CERTIFICATES, str(_folder(layout)))
    return ProcessSpec(
        name=NAME,
        argv=(
            str(program),
            f"-kubeconfig={config}",
            f"-health-probe-bind-address=127.0.0.1:{plan.ports[NAME]}",
            f"-metrics-bind-address=127.0.0.1:{plan.ports[f'{NAME}-metrics']}",
            f"-webhook-server-port={plan.ports[f'{NAME}-webhook']}",
            f"-pytorch-init-container-image={_INIT_IMAGE}",
            f"-mpi-kubectl-delivery-image={_INIT_IMAGE}",
            *(f"-enable-scheme={kind}" for kind in KINDS),
        ),
        files=(config,),
        namespaces=Namespaces(
            ("mnt",) if machine.root else ("user", "mnt"), mounts=(*private_tmp(layout, program), certificates)
        ),
        port=plan.ports[NAME],
    )


def furnish(api: Api, layout: Layout, definitions: Path) -> None:
    """Make what it needs before it starts.

    Args:
        api: The cluster.
        layout: The sandbox.
        definitions: The folder with the definitions of its kinds.

    Raises:
        TransientError: The API server does not take the definitions into use.
    """
    _folder(layout).mkdir(mode=0o700, exist_ok=True)
    for path, value in _objects().items():
        api.apply(path, value)
    names = [_define(api, definitions / f"kubeflow.org_{kind}s.yaml") for kind in KINDS]
    if not within(30.0, lambda: all(_established(api, name) for name in names)):
        raise TransientError(f"the kinds {', '.join(KINDS)} are not served", reason="StartFailed")


def _objects() -> dict[str, dict[str, Any]]:
    """Path -> object; the Secret and the webhooks are empty, and the operator fills them."""
    hooks = "validator.training-operator.kubeflow.org"
    return {
        f"/api/v1/namespaces/{_NAMESPACE}": {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": _NAMESPACE},
        },
        _SECRET: {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET.rpartition("/")[2]}},
        f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{hooks}": {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": hooks},
        },
        **role_objects(_USER, _RULES),
    }


def _define(api: Api, file: Path) -> str:
    """Define one kind, unless this very definition stands there; gives its name."""
    content = file.read_bytes()
    source = hashlib.sha256(content).hexdigest()
    name = f"{file.stem.partition('_')[2]}.kubeflow.org"
    found = api.get(f"{_DEFINITIONS}/{name}")
    known = found.json()["metadata"].get("annotations", {}) if found is not None and found.status == 200 else {}
    if known.get(_SOURCE) == source:
        return name
    # Half a megabyte of YAML: seconds for the parser in Python.
    value = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    value["metadata"].setdefault("annotations", {})[_SOURCE] = source
    value.pop("status", None)
    api.apply(f"{_DEFINITIONS}/{name}", value)
    return name


def _established(api: Api, name: str) -> bool:
    found = api.get(f"{_DEFINITIONS}/{name}")
    if found is None or found.status != 200:
        return False
    conditions = found.json().get("status", {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def tell_of_storage(api: Api, layout: Layout) -> None:
    """Say how much local storage a node has, where its kubelet does not.

    It does not count that with cgroup v1, and the launcher of an MPIJob asks
    for 5 GiB of it, which no node would have then.

    Args:
        api: The cluster.
        layout: The sandbox.
    """
    for node in api.list("/api/v1/nodes"):
        if _STORAGE not in node["status"].get("capacity", {}):
            # A kubelet keeps what stands there of a resource that it does not count.
            there = {_STORAGE: str(shutil.disk_usage(layout.root).total)}
            path = f"/api/v1/nodes/{node['metadata']['name']}/status"
            api.patch(path, {"status": {"capacity": there, "allocatable": there}})


def deliver_certificates(api: Api, layout: Layout) -> bool:
    """Write the certificate that the operator has put in its Secret where it looks for it.

    Args:
        api: The cluster.
        layout: The sandbox.

    Returns:
        Whether it was there.
    """
    found = api.get(_SECRET)
    data = found.json().get("data") or {} if found is not None and found.status == 200 else {}
    if not all(name in data for name in _CERTIFICATE_FILES):
        return False
    for name in _CERTIFICATE_FILES:
        write_private(_folder(layout) / name, base64.b64decode(data[name]))
    return True
