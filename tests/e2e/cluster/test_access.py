"""Who may do what: what is missing is named, and a token that ends is renewed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.cluster import NEEDED, ClusterCache, ClusterClient, Permission, Snapshot
from provisioner.cluster.api import Resource
from provisioner.errors import PermanentError, TransientError
from provisioner.settings import Settings

ACCOUNTS = Resource("ServiceAccount", "", "v1", "serviceaccounts")
SECRETS = Resource("Secret", "", "v1", "secrets")
ROLES = Resource("Role", "rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = Resource("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings")

FULL = [
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["*"]},
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "persistentvolumeclaims", "events", "pods/log"],
        "verbs": ["*"],
    },
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "patch", "delete"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["*"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
]


def without(resource: str) -> list[dict[str, Any]]:
    rules = [{**rule, "resources": [name for name in rule["resources"] if name != resource]} for rule in FULL]
    return [rule for rule in rules if rule["resources"]]


class Account:
    """A user with a role in one namespace, and a kubeconfig of its own."""

    def __init__(self, lab: Any, folder: Path, rules: list[dict[str, Any]]) -> None:
        self._lab, self._path = lab, folder / "kubeconfig"
        lab.put(ACCOUNTS, {"metadata": {"name": "limited"}})
        self.allow(rules)
        subject = {"kind": "ServiceAccount", "name": "limited", "namespace": lab.namespace}
        role = {"apiGroup": ROLES.group, "kind": "Role", "name": "limited"}
        lab.put(BINDINGS, {"metadata": {"name": "limited"}, "subjects": [subject], "roleRef": role})
        self.write(self.token())

    def allow(self, rules: list[dict[str, Any]]) -> None:
        self._lab.put(ROLES, {"metadata": {"name": "limited"}, "rules": rules})

    def token(self, bound_to: Mapping[str, Any] | None = None) -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        if bound_to is not None:
            reference = {"kind": "Secret", "apiVersion": "v1", "name": bound_to["metadata"]["name"]}
            body["spec"]["boundObjectRef"] = {**reference, "uid": bound_to["metadata"]["uid"]}  # type: ignore[index]
        path = ACCOUNTS.path(self._lab.namespace, "limited", "token")
        return str(self._lab.call("POST", path, body)["status"]["token"])

    def write(self, token: str) -> None:
        document = yaml.safe_load(Path(self._lab.settings.kubeconfig).read_text())
        name = self._lab.settings.context
        cluster = next(item["context"]["cluster"] for item in document["contexts"] if item["name"] == name)
        document["users"] = [{"name": "limited", "user": {"token": token}}]
        document["contexts"] = [{"name": "limited", "context": {"cluster": cluster, "user": "limited"}}]
        document["current-context"] = "limited"
        self._path.write_text(yaml.safe_dump(document))

    def client(self) -> ClusterClient:
        return ClusterClient(Settings(kubeconfig=self._path))


def test_a_role_in_one_namespace_is_enough(
    lab: Any, tmp_path: Path, watch: Callable[..., ClusterCache], eventually: Callable[..., Any], spec: Any
) -> None:
    client = Account(lab, tmp_path, FULL).client()
    eventually(lambda: all(missing.cluster_wide for missing in client.permissions(lab.namespace)), "the role in force")
    cache = watch(client, namespaces=[lab.namespace])
    assert cache.wait_synced(30), cache.problems()
    assert cache.problems() == []
    lab.apply(lab.identity(), spec(replicas=0))
    eventually(lambda: cache.snapshot(lab.identity()).statefulset, "the service")


def test_a_missing_permission_is_named_and_its_grant_noticed(
    lab: Any, tmp_path: Path, watch: Callable[..., ClusterCache], eventually: Callable[..., Any]
) -> None:
    account = Account(lab, tmp_path, without("pods"))
    client = account.client()
    cache = watch(client, namespaces=[lab.namespace])
    problem = eventually(lambda: [said for said in cache.problems() if "list pods" in said], "the problem")[0]
    assert f"not allowed to list pods in namespace {lab.namespace}" in problem
    assert "grant verb 'list' on resource 'pods'" in problem
    assert not cache.synced()

    def stale() -> Snapshot | None:
        # Until the role is in force, nothing else may be listed either.
        snapshot = cache.snapshot(lab.identity())
        return snapshot if "list pods" in snapshot.stale_reason else None

    assert not eventually(stale, "the reason for the snapshot").fresh
    pods = {permission for permission in NEEDED if permission.resource == "pods" and not permission.subresource}
    assert pods <= set(client.permissions(lab.namespace))

    account.allow(FULL)
    assert cache.wait_synced(60), cache.problems()
    eventually(lambda: cache.snapshot(lab.identity()).fresh, "fresh")


def test_without_events_only_details_are_lost(
    lab: Any, tmp_path: Path, watch: Callable[..., ClusterCache], eventually: Callable[..., Any]
) -> None:
    client = Account(lab, tmp_path, without("events")).client()
    eventually(lambda: not client.permissions(lab.namespace, [Permission("list", "", "pods")]), "the role in force")
    cache = watch(client, namespaces=[lab.namespace])
    assert cache.wait_synced(30), cache.problems()
    eventually(lambda: cache.snapshot(lab.identity()).fresh, "fresh")
    (problem,) = eventually(lambda: cache.problems(), "the problem")
    assert "list events" in problem
    assert "only details are lost" in problem


def test_a_call_that_is_not_allowed_names_verb_resource_and_namespace(lab: Any, tmp_path: Path) -> None:
    client = Account(lab, tmp_path, without("services")).client()
    with pytest.raises(PermanentError, match=f"get services store in namespace {lab.namespace}") as caught:
        client.foreign(lab.identity())
    assert caught.value.reason == "Forbidden"
    with pytest.raises(PermanentError, match="get namespaces kube-system"):
        client.cluster_id()


@pytest.mark.parametrize("resource", ["poddisruptionbudgets", "secrets"])
def test_who_may_not_read_what_few_services_have_has_none(
    resource: str, lab: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    client = Account(lab, tmp_path, without(resource)).client()
    eventually(lambda: not client.permissions(lab.namespace, [Permission("list", "", "pods")]), "the role in force")
    assert client.foreign(lab.identity()) == []
    assert client.remaining(lab.identity()) == []


def test_a_token_that_ends_is_read_again(
    lab: Any, tmp_path: Path, watch: Callable[..., ClusterCache], eventually: Callable[..., Any], spec: Any
) -> None:
    """A real end: the API server refuses a token once the object it is bound to is gone."""
    account = Account(lab, tmp_path, FULL)
    account.write(account.token(bound_to=lab.put(SECRETS, {"metadata": {"name": "bound"}})))
    client = account.client()
    eventually(lambda: not client.permissions(lab.namespace, [Permission("list", "", "pods")]), "the role in force")
    cache = watch(client, namespaces=[lab.namespace])
    assert cache.wait_synced(30), cache.problems()

    lab.delete(SECRETS, "bound")

    def refused() -> bool:
        try:
            client.remaining(lab.identity())
        except TransientError as error:
            return error.reason == "Unauthorized"
        return False

    eventually(refused, "the token refused")
    eventually(lambda: not cache.snapshot(lab.identity()).fresh, "not fresh")

    account.write(account.token())
    eventually(lambda: cache.snapshot(lab.identity()).fresh, "fresh with the new token")
    assert client.remaining(lab.identity()) == []
