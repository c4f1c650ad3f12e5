"""Record what a real cluster says about each fault, for `test_diagnosis.py`.

    python tests/unit/cluster/recorder/record.py --kubeconfig FILE [--context NAME] [--hollow NODE:PID] [case ...]

Each case causes its fault for real, in a namespace of its own, waits until the
cluster shows it, and writes the objects as the API server gave them (without
managedFields and what else no diagnosis reads) to `recorded/CASE.json`. Needs
the image localhost/busybox:sandbox on the nodes. A pull that must fail names a
registry on loopback: nobody listens at port 5999, and pods in the node's own
network answer 404 and 401 at 5998 and 5997.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cases import CASES, IMAGE, sh
from conditions import Case, Json, Objects

from provisioner.cluster.api import CLAIMS, EVENTS, NAMESPACES, PODS, SERVICES, STATEFULSETS, Resource
from provisioner.cluster.credentials import Credentials
from provisioner.identity import for_name
from provisioner.resources.manifests import service_manifest, stateful_set_manifest
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec, parse_spec

HERE = Path(__file__).parent.parent / "recorded"
PATIENCE = 240.0


REGISTRIES = {
    # The path a pull asks for does not exist.
    "missing": (5998, "mkdir /www; exec httpd -f -p 127.0.0.1:5998 -h /www"),
    # Everything asks for a password.
    "private": (
        5997,
        "mkdir /www; echo /:user:pass > /conf; exec httpd -f -p 127.0.0.1:5997 -h /www -c /conf -r registry",
    ),
}


class Recorder:
    """Causes faults in one cluster and writes down what it shows."""

    def __init__(self, settings: Settings, hollow: tuple[str, int]) -> None:
        self._connection = Credentials(settings).current()
        self.hollow = hollow
        self.namespace = ""
        nodes = self.call("GET", "/api/v1/nodes")["items"]
        self.node = next(item["metadata"]["name"] for item in nodes if item["metadata"]["name"] != hollow[0])
        self.version = self.call("GET", "/version")["gitVersion"]

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Json:
        """Any call; a missing object is an empty answer."""
        answer = self._connection.pool.request(
            method,
            self._connection.host + path,
            body=json.dumps(body) if body is not None else None,
            headers={**self._connection.headers(), "Content-Type": content},
        )
        document: Json = answer.json()
        if answer.status == 404:
            return {}
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {document}")
        return document

    def put(self, kind: Resource, manifest: Json) -> None:
        """Make an object, or change it."""
        version = f"{kind.group}/{kind.version}" if kind.group else kind.version
        body = {"apiVersion": version, "kind": kind.kind, **manifest}
        path = kind.path(self.namespace, manifest["metadata"]["name"]) + "?fieldManager=recorder&force=true"
        self.call("PATCH", path, body, "application/apply-patch+yaml")

    def spec(self, case: Case, **fields: Any) -> DataServiceSpec:
        """The specification of a case."""
        base = {
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "replicas": 1,
            "ports": [{"name": "tcp", "port": 9000}],
            "terminationGracePeriodSeconds": 0,
        }
        return parse_spec(base | case.spec | fields)

    def apply(self, case: Case, **fields: Any) -> DataServiceSpec:
        """Make the service of a case, or change it."""
        wanted = self.spec(case, **fields)
        identity = for_name("tests", "recorded", namespace=self.namespace, name="store")
        manifest = stateful_set_manifest(identity, wanted)
        case.pod(manifest["spec"]["template"]["spec"])
        case.manifest(manifest)
        text = json.dumps(manifest).replace("{node}", self.node).replace("{hollow}", self.hollow[0])
        self.put(SERVICES, service_manifest(identity, wanted))
        self.put(STATEFULSETS, json.loads(text))
        return wanted

    def objects(self) -> Objects:
        """All that there is of the service."""
        where = self.namespace

        def listed(kind: Resource) -> list[Any]:
            return sorted(self.call("GET", kind.path(where))["items"], key=lambda item: str(item["metadata"]["name"]))

        return {
            "namespace": self.call("GET", NAMESPACES.path(None, where)),
            "statefulset": self.call("GET", STATEFULSETS.path(where, "store")) or None,
            "service": self.call("GET", SERVICES.path(where, "store")) or None,
            "pods": listed(PODS),
            "claims": listed(CLAIMS),
            "events": [event for event in listed(EVENTS) if event["type"] == "Warning"],
        }

    def await_(self, shows: Callable[[Objects], bool], what: str) -> Objects:
        """Wait until the objects show something."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            objects = self.objects()
            if objects["statefulset"] and shows(objects):
                return objects
            time.sleep(0.1)
        print(json.dumps(trimmed(self.objects()), indent=1))
        raise SystemExit(f"{what}: not within {PATIENCE:.0f} s")

    def registries(self) -> None:
        """Start what answers 404 and 401, in the node's own network."""
        self.namespace = "recorder-registries"
        self.put(NAMESPACES, {"metadata": {"name": self.namespace}})
        for name, (port, script) in REGISTRIES.items():
            pod = {
                "hostNetwork": True,
                "nodeName": self.node,
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": name,
                        "image": IMAGE,
                        "imagePullPolicy": "IfNotPresent",
                        "readinessProbe": {"tcpSocket": {"port": port, "host": "127.0.0.1"}, "periodSeconds": 1},
                        **sh(script),
                    }
                ],
            }
            self.put(PODS, {"metadata": {"name": name}, "spec": pod})
        deadline = time.monotonic() + PATIENCE
        while any(
            item["status"] != "True"
            for pod in self.call("GET", PODS.path(self.namespace))["items"]
            for item in pod["status"].get("conditions", [{"status": "False"}])
        ):
            if time.monotonic() > deadline:
                raise SystemExit("the registries do not start")
            time.sleep(0.2)

    def record(self, name: str, case: Case) -> None:
        """Cause one fault and write down what is seen."""
        self.namespace = f"recorded-{name}"
        self.put(NAMESPACES, {"metadata": {"name": self.namespace, "labels": dict(case.namespace)}})
        try:
            for kind, manifest in case.before:
                self.put(kind, manifest)
            self.account()
            wanted = self.apply(case)
            if case.then is not None:
                self.await_(case.first, f"{name}, first")
                wanted = case.then(self, case) or wanted
            objects = self.await_(case.shows, name)
        finally:
            self.clean(case)
        document = {
            "case": name,
            "kubernetes": self.version,
            "recordedAt": datetime.now(UTC).isoformat(timespec="seconds"),
            "spec": wanted.document(),
            **trimmed(objects),
        }
        HERE.mkdir(exist_ok=True)
        (HERE / f"{name}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")

    def account(self) -> None:
        """Wait for the namespace's default service account, without which no pod is made."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        while not self.call("GET", path):
            time.sleep(0.05)

    def clean(self, case: Case) -> None:
        """Remove all traces of a case."""
        body = {"metadata": {"finalizers": None}}
        path = STATEFULSETS.path(self.namespace, "store")
        self.call("PATCH", path, body, "application/merge-patch+json")
        self.call("DELETE", NAMESPACES.path(None, self.namespace))
        for kind, manifest in case.before:
            if not kind.namespaced:
                self.call("DELETE", kind.path(None, manifest["metadata"]["name"]))


NOISE = {"managedFields", "resourceVersion", "selfLink", "imageID", "containerID", "allocatedResources", "user"}
NOISE |= {"hostIP", "hostIPs", "podIP", "podIPs", "volumes", "volumeMounts", "tolerations"}


def trimmed(value: Any) -> Any:
    """What is left of objects without what no diagnosis reads."""
    if isinstance(value, Mapping):
        return {key: trimmed(item) for key, item in value.items() if key not in NOISE}
    return [trimmed(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Record the cases named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--context")
    parser.add_argument("--hollow", default="", help="a hollow node that may be lost, as NAME:PID")
    parser.add_argument("case", nargs="*")
    options = parser.parse_args()
    name, _, pid = options.hollow.partition(":")
    recorder = Recorder(Settings(kubeconfig=options.kubeconfig, context=options.context), (name, int(pid or 0)))
    recorder.registries()
    try:
        for case in options.case or [case for case in CASES if not case.startswith("node-")]:
            begin = time.monotonic()
            recorder.record(case, CASES[case])
            print(f"{case}: {time.monotonic() - begin:.1f} s", flush=True)
    finally:
        recorder.call("DELETE", NAMESPACES.path(None, "recorder-registries"))


if __name__ == "__main__":
    main()
