"""What a real cluster refuses is told with its reason and the next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from provisioner.engine import Engine
from provisioner.errors import PermanentError, TransientError
from provisioner.settings import Settings

if TYPE_CHECKING:
    from conftest import Backend, Cluster, Service


@pytest.fixture
def as_user(settings: Settings, tmp_path: Path) -> Callable[..., Engine]:
    """An engine whose kubeconfig's user is changed."""

    def engine(**changes: Any) -> Engine:
        assert settings.kubeconfig is not None
        document = yaml.safe_load(settings.kubeconfig.read_text())
        for item in document["users"]:
            item["user"] |= changes
        path = tmp_path / "other.yaml"
        path.write_text(yaml.safe_dump(document))
        return Engine(settings.model_copy(update={"kubeconfig": path}))

    return engine


def test_a_namespace_that_is_not_there_is_told_at_once(make_service: Callable[..., Service]) -> None:
    service = make_service(namespace="engine-nowhere")
    # The provider alone would try for a minute and a half.
    with pytest.raises(PermanentError, match="namespace engine-nowhere does not exist") as caught:
        service.stack.up(service.program(), deadline=80)
    assert caught.value.reason == "NamespaceNotFound"
    service.stack.destroy()


def test_a_right_that_is_missing_is_named(service: Service, as_user: Callable[..., Engine]) -> None:
    nobody = service.with_engine(as_user(**{"as": "nobody"}))
    with pytest.raises(PermanentError, match="nobody may not patch services in namespace") as caught:
        nobody.stack.up(service.program())
    assert caught.value.reason == "Forbidden"
    assert "verb patch on services" in caught.value.hint


def refusal(cluster: Cluster, namespace: str) -> str:
    """Why no Service can be made; "" when one can."""
    manifest = {"metadata": {"name": "any"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
    try:
        cluster.core.create_namespaced_service(namespace, manifest, dry_run="All")
    except ApiException as error:
        return str(error.body)
    return ""


def test_a_quota_is_named(make_service: Callable[..., Service], cluster: Cluster, wait: Callable[..., Any]) -> None:
    namespace = f"{cluster.namespace}-full"
    cluster.core.create_namespace({"metadata": {"name": namespace}})
    try:
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"services": "0"}}}
        cluster.core.create_namespaced_resource_quota(namespace, quota)
        # Its status can be read before the API server itself goes by it.
        wait(lambda: "exceeded quota" in refusal(cluster, namespace))
        full = make_service(namespace=namespace)
        with pytest.raises(PermanentError, match="quota none is exceeded: asked for services=1") as caught:
            full.stack.up(full.program())
        assert caught.value.reason == "QuotaExceeded"
        full.stack.destroy()
    finally:
        cluster.core.delete_namespace(namespace)


def test_credentials_that_ended_are_no_secret_in_the_error(
    service: Service, as_user: Callable[..., Engine], backend: Backend
) -> None:
    other = service.with_engine(as_user(token="a-token-that-ended", **{"client-certificate": None, "client-key": None}))
    with pytest.raises(TransientError) as caught:
        other.stack.up(service.program())
    assert caught.value.reason == "Unauthorized"
    assert "a-token-that-ended" not in f"{caught.value} {caught.value.hint}"
    assert not [path for path in backend.files() if b"a-token-that-ended" in path.read_bytes()]
