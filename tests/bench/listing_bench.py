"""What the janitor's look at a large fleet costs, beside the engine's own listing of the same backend.

Run: python tests/bench/listing_bench.py [--stacks 10000] [--stock]

Each way is a process of its own, so that its processor time and memory are its own:

- in use: every stack has its objects and a running execution. No checkpoint needs to be read.
- lost: no stack has any object, so every checkpoint must be read. The worst that can be.
- stock (--stock): `pulumi stack ls --all --json`.

The checkpoints are files of the size and shape that the engine writes for one service, with their backups and
history. The API server is a process that answers the janitor's own HTTP calls from memory, page by page.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from provisioner.engine.origin import backend_id
from provisioner.identity import ANNOTATION_BACKEND, Identity, for_task
from provisioner.identity import TaskExecutionId as Task
from provisioner.resources.manifests import outputs, service_manifest, stateful_set_manifest
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec, Port

CREATED = "2026-05-01T07:00:00Z"
CLUSTER = "cluster-of-the-bench"
SPEC = DataServiceSpec(image="registry.example.com/team/store:1", ports=(Port(name="grpc", port=9000),), replicas=3)
_NAMESPACES = "/api/v1/namespaces/kube-system"
# What the engine adds to each resource: where in the program it was registered.
_TRACE = [
    {"sourcePosition": f"project:///../lib/python3.11/site-packages/pulumi/runtime/stack.py#{n}"} for n in range(20)
]
_FIELDS = [
    {
        "manager": "pulumi-kubernetes",
        "operation": "Apply",
        "fieldsV1": {"f:spec": {f"f:field-{n}": {} for n in range(60)}},
    }
]


def identity(number: int) -> Identity:
    task = Task("team", "production", f"f{number:019}", "n0", "graph", "v1", 0)
    return for_task(task, namespace="team-production", name="graph")


def metadata(manifest: Mapping[str, Any], kind: str, number: int, backend: str) -> dict[str, Any]:
    found = dict(manifest["metadata"])
    found["annotations"] = {**found["annotations"], ANNOTATION_BACKEND: backend}
    more = {"uid": f"{kind}-{number:08}", "creationTimestamp": CREATED, "resourceVersion": str(number)}
    return {**found, **more, "managedFields": _FIELDS}


def checkpoint(number: int, backend: str) -> bytes:
    """As the engine writes it after an update that succeeded."""
    who = identity(number)
    prefix = f"urn:pulumi:{who.stack}::data-service::"
    stack, component = (
        f"{prefix}pulumi:pulumi:Stack::data-service-{who.stack}",
        f"{prefix}data-service:index:DataService::g",
    )
    out = outputs(who, SPEC)
    common = {"created": CREATED, "modified": CREATED, "stackTrace": _TRACE}
    inputs = {"identity": asdict(who), "spec": SPEC.document(), "cluster": CLUSTER}
    resources = [
        {"urn": stack, "custom": False, "type": "pulumi:pulumi:Stack", "outputs": out, **common},
        {"urn": component, "custom": False, "type": "data-service:index:DataService", "inputs": inputs, **common},
    ]
    for kind, manifest in (
        ("core/v1:Service", service_manifest(who, SPEC)),
        ("apps/v1:StatefulSet", stateful_set_manifest(who, SPEC)),
    ):
        found = metadata(manifest, kind.rpartition(":")[2], number, backend)
        resources.append(
            {
                "urn": f"{prefix}data-service:index:DataService$kubernetes:{kind}::{who.service}",
                "custom": True,
                "id": f"{who.namespace}/{who.service}",
                "type": f"kubernetes:{kind}",
                "inputs": manifest,
                "outputs": {**manifest, "metadata": found, "__initialApiVersion": "v1", "__inputs": manifest},
                **common,
            }
        )
    latest = {"manifest": {"time": CREATED, "version": "v3.274.1"}, "resources": resources, "metadata": {}}
    return json.dumps(
        {"version": 3, "checkpoint": {"stack": f"organization/data-service/{who.stack}", "latest": latest}}
    ).encode()


def make_backend(folder: Path, stacks: int) -> int:
    """Fill a file backend; gives the size of one checkpoint in bytes."""
    (folder / ".pulumi/stacks/data-service").mkdir(parents=True)
    (folder / ".pulumi/meta.yaml").write_text("version: 1\n")
    backend = backend_id(Settings(backend=f"file://{folder}"))
    old = time.time() - 7 * 86400
    size = 0
    for number in range(stacks):
        name = identity(number).stack
        path = folder / f".pulumi/stacks/data-service/{name}.json"
        content = checkpoint(number, backend)
        size = path.write_bytes(content)
        os.utime(path, (old, old))
        history = folder / f".pulumi/history/data-service/{name}"
        history.mkdir(parents=True)
        # Other names of the same content stand for the backup and the history: they are listed, and never read.
        for other in (path.with_name(f"{path.name}.bak"), history / f"{name}-1.checkpoint.json"):
            other.hardlink_to(path)
        (history / f"{name}-1.history.json").write_text('{"kind": "update", "result": "succeeded"}')
    return size


class ApiServer(ThreadingHTTPServer):
    """Answers the janitor's lists from memory."""

    daemon_threads = True

    def __init__(self, stacks: int, backend: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        sets, services, workflows = [], [], []
        for number in range(stacks):
            who = identity(number)
            manifest = stateful_set_manifest(who, SPEC)
            found = metadata(manifest, "StatefulSet", number, backend)
            sets.append({"metadata": found, "spec": manifest["spec"], "status": {"readyReplicas": 3, "replicas": 3}})
            services.append({"metadata": metadata(service_manifest(who, SPEC), "Service", number, backend)})
            labels = {"execution-id": who.owner, "project": who.project, "domain": who.domain}
            workflows.append(
                {
                    "metadata": {
                        "name": who.owner,
                        "namespace": who.namespace,
                        "labels": labels,
                        "managedFields": _FIELDS,
                    }
                }
            )
        self.lists = {"statefulsets": sets, "services": services, "flyteworkflows": workflows}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == _NAMESPACES:
            self._answer({"metadata": {"uid": CLUSTER}})
            return
        query = parse_qs(parts.query)
        found = self.server.lists.get(parts.path.rpartition("/")[2], [])
        begin, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
        more = {"continue": str(begin + limit)} if begin + limit < len(found) else {}
        self._answer({"metadata": more, "items": found[begin : begin + limit]})

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(stacks: int, backend: str) -> None:
    """The process of the API server: prints its port, then serves."""
    server = ApiServer(stacks, backend)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def sweep() -> None:
    """The process of one look: prints what it cost."""
    from provisioner import logs
    from provisioner.janitor.janitor import Janitor
    from provisioner.janitor.settings import JanitorSettings

    logs.configure(Settings(), level="error")
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    janitor = Janitor(Settings(), JanitorSettings(max_share=1.0))
    report = janitor.sweep(dry_run=True)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    janitor.close()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    reasons = {reason: count for (_, reason), count in report.summary.items()}
    figures = {
        "seconds": seconds,
        "cpu": used,
        "mib": after.ru_maxrss / 1024,
        "read": report.checkpoints_read,
        **reasons,
    }
    print(json.dumps(figures))


def measured(folder: Path, kubeconfig: Path, stacks: int) -> dict[str, Any]:
    """One look by the janitor, in a process of its own."""
    backend = backend_id(Settings(backend=f"file://{folder}"))
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(stacks), backend], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        document = {
            "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "bench", "user": {"token": "none"}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
        kubeconfig.write_text(yaml.safe_dump(document))
        environment = {
            **os.environ,
            "PROVISIONER_BACKEND": f"file://{folder}",
            "PROVISIONER_KUBECONFIG": str(kubeconfig),
        }
        command = [sys.executable, __file__, "--sweep"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        server.kill()
        server.wait()
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def stock(folder: Path) -> dict[str, Any]:
    """The engine's own listing, in its process."""
    from provisioner import toolchain

    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = {
        **os.environ,
        "PULUMI_BACKEND_URL": f"file://{folder}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE": "bench",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    command = [str(toolchain.locate("pulumi").path), "stack", "ls", "--all", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, cwd=folder)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu": used, "mib": after.ru_maxrss / 1024, "read": len(json.loads(done.stdout))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stacks", type=int, default=10_000)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--sweep", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(int(arguments.serve[0]), arguments.serve[1])
        return
    if arguments.sweep:
        sweep()
        return
    with tempfile.TemporaryDirectory(prefix="listing-bench-") as name:
        folder = Path(name) / "backend"
        size = make_backend(folder, arguments.stacks)
        print(f"{arguments.stacks} stacks, {size} bytes each")
        kubeconfig = Path(name) / "kubeconfig"
        rows = {
            "in use": measured(folder, kubeconfig, arguments.stacks),
            "lost": measured(folder, kubeconfig, 0),
        }
        if arguments.stock:
            rows["stock"] = stock(folder)
    print(f"{'way':<8}{'seconds':>10}{'CPU-s':>10}{'MiB':>8}{'checkpoints read':>20}")
    for way, row in rows.items():
        print(f"{way:<8}{row['seconds']:>10.1f}{row['cpu']:>10.1f}{row['mib']:>8.0f}{row['read']:>20}")


if __name__ == "__main__":
    main()
