"""The command line against a real cluster: a namespace for each test, and a look at the objects themselves."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

from provisioner import settings as settings_module
from provisioner.cli.main import main
from provisioner.settings import Settings

PATIENCE = 120.0
IMAGE = "localhost/busybox:sandbox"
_PATHS = {
    "Service": "/api/v1/namespaces/{}/services",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Event": "/api/v1/namespaces/{}/events",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
# What a deletion in the foreground may leave for a moment.
OURS = ("StatefulSet", "Service", "Secret", "PodDisruptionBudget", "Pod")


class Kube:
    """One namespace as the API server shows it: plain documents."""

    def __init__(self, settings: Settings, namespace: str) -> None:
        self.api = config.new_client_from_config(str(settings.kubeconfig), context=settings.context)
        self.namespace = namespace

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        auth = self.api.configuration.auth_settings().get("BearerToken", {})
        headers = {"Accept": "application/json", "Content-Type": content}
        if auth.get("value"):
            headers["Authorization"] = auth["value"]
        answer = self.api.rest_client.pool_manager.request(
            method,
            self.api.configuration.host + path,
            headers=headers,
            body=None if body is None else json.dumps(body),
        )
        document = json.loads(answer.data)
        if answer.status >= 300:
            raise ApiException(status=answer.status, reason=str(document.get("message")))
        return document

    def path(self, kind: str, name: str = "") -> str:
        return _PATHS[kind].format(self.namespace) + (f"/{name}" if name else "")

    def get(self, kind: str, name: str) -> Any:
        try:
            return self.call("GET", self.path(kind, name))
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str) -> list[Any]:
        return list(self.call("GET", self.path(kind))["items"])

    def names(self, *kinds: str) -> list[str]:
        return [f"{kind}/{item['metadata']['name']}" for kind in kinds for item in self.list(kind)]

    def create(self, kind: str, name: str, **fields: Any) -> Any:
        return self.call("POST", self.path(kind), {"metadata": {"name": name, **fields.pop("metadata", {})}, **fields})

    def patch(self, kind: str, name: str, body: Mapping[str, Any], sub: str = "") -> Any:
        path = f"{self.path(kind, name)}{sub}?fieldManager=by-hand"
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def delete(self, kind: str, name: str) -> None:
        self.call("DELETE", self.path(kind, name))

    def uid(self, kind: str, name: str) -> str:
        return str(self.get(kind, name)["metadata"]["uid"])

    def pod(self, name: str) -> Any:
        return self.get("Pod", name)["spec"]

    def exec(self, pod: str, script: str) -> str:
        core = client.CoreV1Api(self.api)
        words = ["sh", "-c", script]
        connected = stream(
            core.connect_get_namespaced_pod_exec, pod, self.namespace, command=words, stdout=True, stderr=True
        )
        return str(connected)


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last: {value!r}"
        time.sleep(0.2)


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_for


@pytest.fixture
def kube(settings: Settings) -> Iterator[Kube]:
    """A namespace of its own."""
    made = Kube(settings, f"declared-{secrets.token_hex(3)}")
    made.call("POST", "/api/v1/namespaces", {"metadata": {"name": made.namespace}})
    wait_for(lambda: made.get("ServiceAccount", "default"), "its default service account")
    yield made
    made.call("DELETE", f"/api/v1/namespaces/{made.namespace}")


@dataclass(frozen=True)
class Ran:
    """What a command did.

    Attributes:
        code: Its exit code.
        out: What it printed as its result.
        err: What it said on the way.
    """

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def row(self) -> Any:
        """The only row of a result."""
        (row,) = self.json
        return row

    def ok(self) -> Ran:
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


Run = Callable[..., Ran]


@pytest.fixture
def run(
    environment: Callable[[], dict[str, str]], kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ran]]:
    """Runs a command in this process: the same code as the console script, without its start."""
    for key, value in environment().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PROVISIONER_NAMESPACE", kube.namespace)
    root = logging.getLogger()
    handlers = root.handlers[:]

    def run(*words: str, stdin: str = "") -> Ran:
        settings_module.load.cache_clear()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), monkeypatch.context() as patched:
            patched.setattr("sys.stdin", io.StringIO(stdin))
            code = main(list(words))
        return Ran(int(code), out.getvalue(), err.getvalue())

    yield run
    root.handlers[:] = handlers
    settings_module.load.cache_clear()


@pytest.fixture
def spec() -> Callable[..., dict[str, Any]]:
    """A small service that listens, with changes."""

    def spec(**change: Any) -> dict[str, Any]:
        base: dict[str, Any] = {
            "image": IMAGE,
            "command": ["/bin/busybox", "httpd", "-f", "-p", "9000"],
            "ports": [{"name": "main", "port": 9000}],
            "replicas": 1,
            "readinessProbe": {"tcpSocket": {"port": "main"}, "periodSeconds": 1},
            "terminationGracePeriodSeconds": 0,
            "startDeadline": "2m",
        }
        return {key: value for key, value in {**base, **change}.items() if value is not None}

    return spec


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Writes a file with one service; gives its path."""

    def write(spec: Mapping[str, Any], name: str = "graph", **metadata: str) -> str:
        path = tmp_path / f"{name}.yaml"
        document = {"apiVersion": "data-service/v1", "metadata": {"name": name, **metadata}, "spec": dict(spec)}
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


@pytest.fixture
def apply(run: Run, spec: Callable[..., dict[str, Any]], file: Callable[..., str]) -> Callable[..., Ran]:
    """Applies the small service with changes, and waits until it is ready."""

    def apply(*words: str, **change: Any) -> Ran:
        return run("apply", "-o", "json", "-f", file(spec(**change)), *words)

    return apply


@pytest.fixture
def backend(settings: Settings) -> Path:
    return Path(settings.backend.removeprefix("file://"))
