"""The objects that are the sandbox's own affair: a default StorageClass, its components' roles, nodes that are gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from provisioner.sandbox.api import Api

STORAGE_CLASS = "standard"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def objects() -> dict[str, dict[str, Any]]:
    """Path -> object of all that every sandbox has."""
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/host-path",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }
    reads = ["list", "watch"]
    dns: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": reads},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": reads},
    ]
    return {
        f"/apis/storage.k8s.io/v1/storageclasses/{STORAGE_CLASS}": storage,
        **role_objects("sandbox:coredns", dns),
        # The API server calls kubelets for logs and exec, and kubelets ask who may.
        f"{_RBAC}/clusterrolebindings/sandbox:kubelet-api": _binding(
            "sandbox:kubelet-api", "sandbox:kube-apiserver", role="system:kubelet-api-admin"
        ),
    }


def role_objects(user: str, rules: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Path -> object of a role of the user's own name, and of what gives it to the user.

    Args:
        user: The user.
        rules: What the user may do, everywhere.
    """
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": user},
        "rules": rules,
    }
    return {
        f"{_RBAC}/clusterroles/{user}": role,
        f"{_RBAC}/clusterrolebindings/{user}": _binding(user, user),
    }


def _binding(name: str, user: str, *, role: str = "") -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role or name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def furnish(api: Api) -> None:
    """Make everything, or set it right again."""
    for path, value in objects().items():
        api.apply(path, value)


def remove_nodes(api: Api, kept: Iterable[str]) -> None:
    """Delete the Node objects of nodes that are no more, and the pods that nobody will ever end.

    Args:
        api: The cluster.
        kept: Names of the nodes that there are.
    """
    names = set(kept)
    for item in api.list("/api/v1/nodes"):
        gone = item["metadata"]["name"]
        if gone in names:
            continue
        for pod in api.list(f"/api/v1/pods?fieldSelector=spec.nodeName={gone}"):
            facts = pod["metadata"]
            api.delete(f"/api/v1/namespaces/{facts['namespace']}/pods/{facts['name']}", grace=0)
        api.delete(f"/api/v1/nodes/{gone}")
