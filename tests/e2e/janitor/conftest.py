"""Services that are really made, owners that really end, and a janitor whose clock can be set forward."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import casting
import pytest
from casting import Mould
from kubernetes import client, config
from kubernetes.stream import stream
from wire import Wire

from provisioner.cluster import ClusterClient
from provisioner.cluster.api import CLAIMS, NAMESPACES, SERVICES, STATEFULSETS, Call, Resource
from provisioner.cluster.leases import LEASES, user_lease, user_lease_name
from provisioner.cluster.transport import NotFoundError
from provisioner.engine import Engine
from provisioner.engine.origin import backend_id
from provisioner.engine.process import session_members
from provisioner.errors import ProvisionerError
from provisioner.identity import Identity, Origin, for_name
from provisioner.janitor.janitor import Janitor
from provisioner.janitor.objects import Objects
from provisioner.janitor.owners_flyteworkflow import WORKFLOWS
from provisioner.janitor.settings import JanitorSettings
from provisioner.resources.component import program
from provisioner.sealing import Sealer
from provisioner.settings import Settings
from provisioner.spec import DataServiceSpec

if TYPE_CHECKING:
    from provisioner.sandbox import Sandbox

PATIENCE = 120.0
PROJECT, DOMAIN = "team", "development"
# No node has this label: the pods of most tests are never placed, and cost no kubelet anything.
NOWHERE = {"example.com/nowhere": "true"}
CRDS = Resource("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
_ADMISSION = ("admissionregistration.k8s.io", "v1")
POLICIES = Resource("ValidatingAdmissionPolicy", *_ADMISSION, "validatingadmissionpolicies", namespaced=False)
BINDINGS = Resource(
    "ValidatingAdmissionPolicyBinding", *_ADMISSION, "validatingadmissionpolicybindings", namespaced=False
)
ACCOUNTS = Resource("ServiceAccount", "", "v1", "serviceaccounts")
CONFIG_MAPS = Resource("ConfigMap", "", "v1", "configmaps")
_KINDS = {resource.kind: resource for resource in (SERVICES, STATEFULSETS)}
_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "flyteworkflows.flyte.lyft.com"},
    "spec": {
        "group": WORKFLOWS.group,
        "names": {"kind": WORKFLOWS.kind, "plural": WORKFLOWS.plural, "singular": "flyteworkflow"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": WORKFLOWS.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)
    return value


def state_of(stat: Path) -> str:
    return stat.read_text().rpartition(")")[2].split()[0]


class Lab:
    """One namespace with services, and eyes on them."""

    def __init__(self, settings: Settings, variables: dict[str, str], namespace: str, mould: Mould | None) -> None:
        self.settings = settings
        self._mould = mould
        self.variables = variables
        self.namespace = namespace
        self.client = ClusterClient(settings)
        self.engine = Engine(settings)
        self.objects = Objects(self.client, (namespace,))
        self.origin = Origin(self.client.cluster_id(), backend_id(settings))
        self.backend = Path(settings.backend.removeprefix("file://"))

    def call(self, verb: str, resource: Resource, name: str | None = None, body: Any = None) -> Mapping[str, Any]:
        return self.client.transport.json(Call(verb, resource, self.namespace, name), body=body)

    def status(self, resource: Resource, name: str, status: Mapping[str, Any]) -> None:
        call = Call("patch", resource, self.namespace, name, "status")
        self.client.transport.json(call, body={"status": status})

    def identity(self, name: str, owner: str = "") -> Identity:
        return for_name(PROJECT, DOMAIN, namespace=self.namespace, name=name, owner=owner)

    def spec(self, **fields: Any) -> DataServiceSpec:
        """A service that is never too late to be ready, unless a test says otherwise."""
        values = {
            "image": "127.0.0.1:5999/missing:1",
            "nodeSelector": NOWHERE,
            "ports": [{"name": "tcp", "port": 9000}],
            "startDeadline": "300d",
            "terminationGracePeriodSeconds": 0,
        }
        return DataServiceSpec.model_validate(values | fields)

    def put(self, name: str, owner: str = "", origin: Origin | None = None, /, **fields: Any) -> Identity:
        """A service that was applied in full: its objects, and a record that the engine can destroy."""
        assert self._mould is not None
        who, spec, origin = self.identity(name, owner), self.spec(**fields), origin or self.origin
        uids = {
            kind: self.call("create", _KINDS[kind], body=manifest)["metadata"]["uid"]
            for kind, manifest in casting.manifests(who, spec, origin).items()
        }
        folder = self.backend / ".pulumi/stacks/data-service"
        folder.mkdir(parents=True, exist_ok=True)
        (self.backend / ".pulumi/meta.yaml").write_bytes(self._mould.meta)
        (folder / f"{who.stack}.json").write_text(self._mould.cast(who, spec, origin, uids))
        return who

    def up(self, name: str, owner: str = "", origin: Origin | None = None, /, **fields: Any) -> Identity:
        """The same by the engine, which takes its time."""
        who, sealer = self.identity(name, owner), Sealer.of(self.settings)
        wanted = program(who, sealer.sealed(self.spec(**fields), who.stack), sealer, origin or self.origin)
        self.engine.stack(who.stack).up(wanted)
        return who

    def interrupted(self, moment: str, name: str, owner: str = "", **fields: Any) -> Identity:
        """A service whose operation was killed in the middle, with all of its processes."""
        who = self.identity(name, owner)
        arguments = [asdict(who), self.spec(**fields).document(), asdict(self.origin)]
        script = Path(__file__).with_name("interrupted.py")
        finished = subprocess.run(
            [sys.executable, str(script), moment, *(json.dumps(item) for item in arguments)],
            env={**os.environ, **self.variables},
            capture_output=True,
            check=False,
        )
        assert finished.returncode == -9, finished.stderr.decode()
        return who

    @staticmethod
    def kill_with_all_it_started(process: subprocess.Popen[bytes]) -> None:
        """As a pod is killed: the process and everything below it at once."""
        victims = []
        # What stands still starts nothing new while it is looked for. All threads must have come to their halt.
        process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{process.pid}/task")
        wait_for(lambda: all(state_of(task / "stat") == "T" for task in tasks.iterdir()), "it stands still")
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == process.pid:
                    # Each leads a session of its own, with the provider in it.
                    victims += [int(stat.parent.name), *session_members(int(stat.parent.name))]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def recorded(self, who: Identity) -> bool:
        return self.engine.state.exists(who.stack)

    def uids(self, who: Identity) -> dict[str, str]:
        """What is there of a service, claims left out: `KIND/NAME` -> uid."""
        found = self.objects.labelled(who.stack).objects.get(who.stack, ())
        return {f"{item.kind}/{item.name}": item.uid for item in found if item.kind != CLAIMS.kind}

    def gone(self, who: Identity) -> bool:
        """Whether nothing of it is left but claims that were to stay."""
        labelled = self.objects.labelled(who.stack)
        return not (self.recorded(who) or self.uids(who) or labelled.dependents.get(who.stack))

    def claims(self, who: Identity) -> list[str]:
        found = self.objects.labelled(who.stack).objects.get(who.stack, ())
        return [item.name for item in found if item.kind == CLAIMS.kind]

    def annotate(self, who: Identity, **annotations: str | None) -> None:
        """Annotations of the StatefulSet, by the last part of their name."""
        named = {f"data-service-provisioner/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.call("patch", STATEFULSETS, who.service, {"metadata": {"annotations": named}})

    def ready(self, who: Identity) -> int:
        found = self.objects.labelled(who.stack).objects.get(who.stack, ())
        return next((item.ready for item in found if item.kind == STATEFULSETS.kind), -1)

    def execute(self, pod: str, command: str) -> None:
        """Run a shell command in a pod."""
        api = config.new_client_from_config(str(self.settings.kubeconfig), self.settings.context)
        call = client.CoreV1Api(api).connect_get_namespaced_pod_exec
        stream(call, pod, self.namespace, command=["sh", "-c", command], stdout=True, stderr=True)

    def notice(self, who: Identity) -> str:
        item = next(item for item in self.objects.labelled(who.stack).objects[who.stack] if item.kind == "StatefulSet")
        return item.annotations.get("data-service-provisioner/notice", "")

    def delete_objects(self, who: Identity) -> None:
        for resource in (STATEFULSETS, SERVICES):
            self.call("delete", resource, who.service)
        wait_for(lambda: not self.objects.labelled(who.stack).dependents, "its pods are gone")

    @contextmanager
    def held(self, *services: Identity) -> Iterator[None]:
        """Their removal begins and cannot end: what is to be seen in its middle is there until it is."""
        for finalizers in (["example.com/hold"], None):
            for who in services:
                self.call("patch", SERVICES, who.service, {"metadata": {"finalizers": finalizers}})
            if finalizers:
                yield

    @contextmanager
    def undeletable(self, who: Identity) -> Iterator[None]:
        """The API server refuses to delete its Service, as an admission policy of the cluster may."""
        name = f"{self.namespace}-{who.service}"
        service = Call("delete", SERVICES, self.namespace, who.service)
        for resource, spec in (
            (
                POLICIES,
                {
                    "matchConstraints": {
                        "resourceRules": [
                            {
                                "apiGroups": [""],
                                "apiVersions": ["v1"],
                                "operations": ["DELETE"],
                                "resources": ["services"],
                            }
                        ],
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                    },
                    "validations": [{"expression": f"oldObject.metadata.name != '{who.service}'"}],
                },
            ),
            (BINDINGS, {"policyName": name, "validationActions": ["Deny"]}),
        ):
            self.client.transport.json(Call("create", resource), body={"metadata": {"name": name}, "spec": spec})

        def refused() -> bool:
            try:
                self.client.transport.json(service, body={"dryRun": ["All"]})
            except ProvisionerError as error:
                return "denied" in error.message
            return False

        wait_for(refused, "the policy is in force")
        yield
        for resource in (BINDINGS, POLICIES):
            self.client.transport.json(Call("delete", resource, name=name))
        wait_for(lambda: not refused(), "the policy is not in force any more")

    def lease(self, who: Identity, holder: str, *, seconds: int, renewed: datetime | None = None) -> None:
        """A user of a shared service."""
        self.annotate(who, users="lease")
        manifest = user_lease(who.stack, self.namespace, holder, seconds=seconds, now=renewed or datetime.now(UTC))
        self.call("create", LEASES, body=manifest)

    def there(self, resource: Resource, name: str) -> bool:
        with suppress(NotFoundError):
            self.call("get", resource, name)
            return True
        return False

    def has_lease(self, who: Identity, holder: str) -> bool:
        return self.there(LEASES, user_lease_name(who.stack, holder))

    def events(self, reason: str) -> list[str]:
        """The objects that events with this reason are about."""
        events = Resource("Event", "", "v1", "events")
        page = self.client.transport.json(Call("list", events, self.namespace))
        return [item["involvedObject"]["name"] for item in page["items"] if item["reason"] == reason]

    def locks(self, who: Identity) -> int:
        return len(self.engine.state.locks(who.stack))

    def protect(self, who: Identity, value: bool) -> None:
        """Pulumi's own flag, on each object of its record."""
        path = self.backend / f".pulumi/stacks/data-service/{who.stack}.json"
        document = json.loads(path.read_text())
        for resource in document["checkpoint"]["latest"]["resources"]:
            resource["protect"] = value
        path.write_text(json.dumps(document))

    def lock(self, who: Identity, *, pid: int, host: str | None = None) -> Path:
        """A lock as the engine writes it."""
        folder = self.backend / ".pulumi/locks/organization/data-service" / who.stack
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{secrets.token_hex(8)}.json"
        content = {
            "pid": pid,
            "username": "somebody",
            "hostname": host or socket.gethostname(),
            "timestamp": datetime.now(UTC).isoformat(),
        }
        path.write_text(json.dumps(content))
        return path


class Flyte:
    """Executions of Flyte, as propeller shows them in the cluster."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def start(self, execution: str) -> str:
        labels = {"execution-id": execution, "project": PROJECT, "domain": DOMAIN}
        body = {
            "apiVersion": f"{WORKFLOWS.group}/{WORKFLOWS.version}",
            "kind": WORKFLOWS.kind,
            "metadata": {"name": execution, "namespace": self._lab.namespace, "labels": labels},
            "status": {"phase": 1},
        }
        self._lab.call("create", WORKFLOWS, body=body)
        return execution

    def end(self, execution: str, *, phase: int = 3, ago: timedelta = timedelta()) -> None:
        """It ends: succeeded (3), failed (5) or aborted (6)."""
        stopped = (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "metadata": {"labels": {"termination-status": "terminated"}},
            "status": {"phase": phase, "stoppedAt": stopped},
        }
        self._lab.call("patch", WORKFLOWS, execution, body)

    def forget(self, execution: str) -> None:
        """Propeller removes what ended some hours ago."""
        self._lab.call("delete", WORKFLOWS, execution)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait until something holds, and return it."""
    return wait_for


@contextmanager
def laboratory(settings: Settings, variables: dict[str, str], mould: Mould | None) -> Iterator[Lab]:
    """A namespace of its own, deleted afterwards."""
    made = Lab(settings, variables, f"janitor-{secrets.token_hex(4)}", mould)
    made.client.transport.json(Call("create", NAMESPACES), body={"metadata": {"name": made.namespace}})
    # Controllers put them there some time later, and without the account no pod can be created.
    for resource, name in ((ACCOUNTS, "default"), (CONFIG_MAPS, "kube-root-ca.crt")):
        wait_for(lambda call=(resource, name): made.there(*call), f"{name} is there")
    yield made
    made.client.transport.json(Call("delete", NAMESPACES, name=made.namespace))


@pytest.fixture(scope="session")
def passphrase_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One passphrase for all, with which every record that is cast can be opened."""
    return tmp_path_factory.mktemp("janitor") / "passphrase"


@pytest.fixture
def settings(settings: Settings, passphrase_file: Path) -> Settings:
    """Settings with a backend of their own."""
    return settings.model_copy(update={"passphrase_file": passphrase_file})


@pytest.fixture(scope="session")
def mould(sandbox: Sandbox, passphrase_file: Path) -> Mould:
    """A service that the engine made."""
    settings = Settings(
        backend=f"file://{passphrase_file.with_name('backend')}",
        passphrase_file=passphrase_file,
        kubeconfig=sandbox.kubeconfig,
        context=sandbox.context,
    )
    with laboratory(settings, {}, None) as lab:
        who = lab.up(f"mould-{secrets.token_hex(4)}")
        uids = {key.partition("/")[0]: uid for key, uid in lab.uids(who).items()}
        record = (lab.backend / f".pulumi/stacks/data-service/{who.stack}.json").read_text()
        return Mould(who, uids, record, (lab.backend / ".pulumi/meta.yaml").read_bytes())


@pytest.fixture
def lab(settings: Settings, environment: Callable[[], dict[str, str]], mould: Mould) -> Iterator[Lab]:
    """A namespace and a backend of its own, and services in them."""
    with laboratory(settings, environment(), mould) as made:
        yield made


@pytest.fixture
def flyte(lab: Lab) -> Iterator[Flyte]:
    """The type of object by which executions are known, and executions."""
    try:
        lab.client.transport.json(Call("create", CRDS), body=_CRD)
    except ProvisionerError as error:
        if error.reason != "AlreadyExists":
            raise

    def served() -> bool:
        # First the type is not known, then its storage is being set up.
        with suppress(ProvisionerError):
            lab.call("list", WORKFLOWS)
            return True
        return False

    wait_for(served, "FlyteWorkflows are served")
    yield Flyte(lab)
    # Executions are looked for in all namespaces, and a namespace takes its time to go.
    for item in lab.call("list", WORKFLOWS)["items"]:
        lab.call("delete", WORKFLOWS, item["metadata"]["name"])


@pytest.fixture
def janitor(lab: Lab) -> Iterator[Callable[..., Janitor]]:
    """A janitor of this namespace, with its clock set forward by some hours; other settings as given."""
    made: list[Janitor] = []

    def make(hours: float = 0, *, settings: Settings | None = None, **own: Any) -> Janitor:
        chosen = JanitorSettings(**{"namespaces": (lab.namespace,), "max_share": 1.0, **own})
        clock = (lambda: datetime.now(UTC) + timedelta(hours=hours)) if hours else (lambda: datetime.now(UTC))
        made.append(Janitor(settings or lab.settings, chosen, clock))
        return made[-1]

    yield make
    for item in made:
        item.close()


@pytest.fixture
def wire(settings: Settings, tmp_path: Path) -> Iterator[Wire]:
    """The API server behind a wire that can be cut."""
    assert settings.kubeconfig is not None
    assert settings.context is not None
    made = Wire(settings.kubeconfig, settings.context, tmp_path)
    yield made
    made.close()
