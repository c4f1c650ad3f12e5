"""Every fault that is recorded, and how it is caused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from conditions import Case, both, condition, crashed, phase, ready, running, said, statuses, waits

from provisioner.cluster.api import NAMESPACES, SECRETS, STATEFULSETS, Resource
from provisioner.spec import DataServiceSpec

if TYPE_CHECKING:
    from record import Recorder

IMAGE = "localhost/busybox:sandbox"


def sh(script: str) -> dict[str, Any]:
    """A container that runs a shell script."""
    return {"command": ["sh", "-c", script]}


SERVE = sh("exec nc -ll -p 9000 -e cat")


def resource(kind: str, group: str, plural: str, version: str = "v1", namespaced: bool = True) -> Resource:
    """A kind that only the recorder needs."""
    return Resource(kind, group, version, plural, namespaced)


QUOTAS = resource("ResourceQuota", "", "resourcequotas")
CLASSES = resource("StorageClass", "storage.k8s.io", "storageclasses", namespaced=False)
RUNTIMES = resource("RuntimeClass", "node.k8s.io", "runtimeclasses", namespaced=False)
POLICIES = resource(
    "ValidatingAdmissionPolicy", "admissionregistration.k8s.io", "validatingadmissionpolicies", namespaced=False
)
POLICY_BINDINGS = resource(
    "ValidatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
WEBHOOKS = resource(
    "ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io",
    "validatingwebhookconfigurations",
    namespaced=False,
)

ONLY_HERE = {"matchLabels": {"recorder/fault": "yes"}}
POD_CREATION = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
POLICY = {
    "metadata": {"name": "recorder-owner"},
    "spec": {
        "matchConstraints": {"resourceRules": [POD_CREATION], "namespaceSelector": ONLY_HERE},
        "validations": [{"expression": "has(object.metadata.labels.team)", "message": "every pod needs a label team"}],
    },
}
BINDING = {
    "metadata": {"name": "recorder-owner"},
    "spec": {"policyName": "recorder-owner", "validationActions": ["Deny"]},
}
WEBHOOK = {
    "metadata": {"name": "recorder-webhook"},
    "webhooks": [
        {
            "name": "policy.example.com",
            "rules": [POD_CREATION],
            "namespaceSelector": ONLY_HERE,
            "clientConfig": {"url": "https://127.0.0.1:5996/check"},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 2,
        }
    ],
}
HERE_LABEL = {"recorder/fault": "yes"}


def container(pod: dict[str, Any], **fields: Any) -> None:
    """Change the one container."""
    pod["containers"][0].update(fields)


def claims(storage_class: str | None) -> Callable[[dict[str, Any]], None]:
    """A claim template with a storage class."""

    def change(manifest: dict[str, Any]) -> None:
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        if storage_class is not None:
            spec["storageClassName"] = storage_class
        manifest["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": spec}]

    return change


def probe(**fields: Any) -> dict[str, Any]:
    """A probe that acts quickly."""
    return {"periodSeconds": 1, "failureThreshold": 1, **fields}


def update(**fields: Any) -> Callable[[Recorder, Case], DataServiceSpec]:
    """Apply the specification again with other fields."""
    return lambda recorder, case: recorder.apply(case, **fields)


def delete_namespace(recorder: Recorder, _: Case) -> None:
    """Ask for the deletion of the namespace."""
    recorder.call("DELETE", NAMESPACES.path(None, recorder.namespace))


def delete_statefulset(recorder: Recorder, _: Case) -> None:
    """Ask for the deletion of the StatefulSet."""
    recorder.call("DELETE", STATEFULSETS.path(recorder.namespace, "store"))


def kill_node(recorder: Recorder, _: Case) -> None:
    """End the hollow node's process without a word."""
    os.kill(recorder.hollow[1], signal.SIGKILL)


def hold(manifest: dict[str, Any]) -> None:
    """Let a deleted StatefulSet stay."""
    manifest["metadata"]["finalizers"] = ["tests/hold"]


CASES: dict[str, Case] = {
    "ready": Case(ready(2), spec=SERVE | {"replicas": 2}),
    "paused": Case(ready(0), spec=SERVE | {"replicas": 0}),
    "starting": Case(waits("ContainerCreating"), spec=SERVE),
    "scaled": Case(ready(2), SERVE | {"replicas": 1}, first=ready(1), then=update(replicas=2)),
    "rolling": Case(
        lambda objects: (
            (objects["statefulset"]["status"]["currentRevision"] != objects["statefulset"]["status"]["updateRevision"])
            and len(objects["pods"]) == 2
        ),
        SERVE | {"replicas": 2},
        first=ready(2),
        then=update(env={"EDITION": "2"}),
    ),
    "image-unreachable": Case(waits("ImagePullBackOff"), {"image": "127.0.0.1:5999/missing:1"}),
    "image-unreachable-first": Case(waits("ErrImagePull"), {"image": "127.0.0.1:5999/missing:1"}),
    "image-not-found": Case(waits("ImagePullBackOff"), {"image": "127.0.0.1:5998/nosuch:1"}),
    "image-unauthorized": Case(waits("ImagePullBackOff"), {"image": "127.0.0.1:5997/private:1"}),
    "image-no-such-host": Case(waits("ImagePullBackOff"), {"image": "registry.invalid/store:404"}),
    "image-invalid": Case(waits("InvalidImageName"), pod=lambda pod: container(pod, image="Not/An Image")),
    "image-never": Case(waits("ErrImageNeverPull"), {"image": "localhost/absent:1", "imagePullPolicy": "Never"}),
    "crash": Case(crashed(code=3), sh("echo loading the graph; echo no such shard >&2; exit 3")),
    "crash-first": Case(
        lambda objects: any("terminated" in status["state"] for status in statuses(objects)), sh("echo boom; exit 1")
    ),
    "crash-again": Case(
        both(crashed(code=1), lambda objects: any(status["restartCount"] >= 3 for status in statuses(objects))),
        sh("echo boom; exit 1"),
    ),
    "crash-running": Case(
        lambda objects: any(status["restartCount"] and "running" in status["state"] for status in statuses(objects)),
        sh("sleep 3; exit 1"),
    ),
    "crash-signal": Case(crashed(code=139), sh("sh -c 'kill -SEGV $$$$'; exit $?")),
    "crash-zero": Case(crashed(code=0), sh("exec true")),
    "crash-127": Case(crashed(code=127), sh("graph-store --port 9000")),
    "out-of-memory": Case(
        crashed("OOMKilled"), {"command": ["tail", "/dev/zero"], "resources": {"limits": {"memory": "16Mi"}}}
    ),
    "command-not-found": Case(crashed("StartError"), {"command": ["graph-store"]}),
    "command-not-found-first": Case(waits("RunContainerError"), {"command": ["graph-store"]}),
    "secret-missing": Case(
        waits("CreateContainerConfigError"),
        SERVE | {"env": {"TOKEN": {"secretKeyRef": {"name": "absent", "key": "token"}}}},
    ),
    "secret-key-missing": Case(
        waits("CreateContainerConfigError"),
        SERVE | {"env": {"TOKEN": {"secretKeyRef": {"name": "present", "key": "token"}}}},
        before=((SECRETS, {"metadata": {"name": "present"}, "stringData": {"a": "b"}}),),
    ),
    "readiness-refused": Case(both(said("Unhealthy"), running), sh("sleep 3600")),
    "readiness-http": Case(
        both(said("Unhealthy", "404"), running),
        {"command": ["httpd", "-f", "-p", "9000"], "readinessProbe": probe(httpGet={"port": 9000, "path": "/healthz"})},
    ),
    "readiness-exec": Case(
        both(said("Unhealthy"), running),
        SERVE | {"readinessProbe": probe(exec={"command": ["sh", "-c", "echo shard 3 of 9 loaded; exit 1"]})},
    ),
    "liveness": Case(
        both(crashed(), said("Unhealthy", "Liveness")),
        SERVE | {"livenessProbe": probe(exec={"command": ["sh", "-c", "echo dead lock; exit 1"]})},
    ),
    "startup": Case(
        both(crashed(), said("Unhealthy", "Startup")),
        sh("sleep 3600") | {"startupProbe": probe(tcpSocket={"port": 9000})},
    ),
    "unschedulable-memory": Case(
        condition("PodScheduled", "Insufficient"),
        SERVE | {"replicas": 2, "resources": {"requests": {"memory": "900Gi", "cpu": "1m"}}},
    ),
    "unschedulable-selector": Case(
        condition("PodScheduled", "nodes are available"), SERVE | {"nodeSelector": {"gpu": "a100"}}
    ),
    "unschedulable-gated": Case(
        condition("PodScheduled", "gate"),
        SERVE,
        pod=lambda pod: pod.update(schedulingGates=[{"name": "example.com/queue"}]),
    ),
    "claim-class-missing": Case(
        both(said("ProvisioningFailed", about="PersistentVolumeClaim"), condition("PodScheduled", "")),
        SERVE,
        manifest=claims("absent"),
    ),
    "claim-not-provided": Case(
        condition("PodScheduled", "PersistentVolumeClaim"),
        SERVE,
        manifest=claims("recorder-nobody"),
        before=((CLASSES, {"metadata": {"name": "recorder-nobody"}, "provisioner": "example.com/nobody"}),),
    ),
    "claim-no-class": Case(condition("PodScheduled", "PersistentVolumeClaim"), SERVE, manifest=claims("")),
    "quota": Case(
        both(said("FailedCreate", "exceeded quota"), lambda objects: len(objects["pods"]) == 2),
        SERVE | {"replicas": 3},
        before=((QUOTAS, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}}),),
    ),
    "quota-scaled-down": Case(
        ready(2),
        SERVE | {"replicas": 3},
        before=((QUOTAS, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}}),),
        first=said("FailedCreate", "exceeded quota"),
        then=update(replicas=2),
    ),
    "admission-policy": Case(
        said("FailedCreate", "team"),
        SERVE,
        namespace=HERE_LABEL,
        before=((POLICIES, POLICY), (POLICY_BINDINGS, BINDING)),
    ),
    "admission-security": Case(
        said("FailedCreate", "PodSecurity"), SERVE, namespace={"pod-security.kubernetes.io/enforce": "restricted"}
    ),
    "admission-unavailable": Case(
        said("FailedCreate", "webhook"), SERVE, namespace=HERE_LABEL, before=((WEBHOOKS, WEBHOOK),)
    ),
    "service-account-missing": Case(said("FailedCreate"), SERVE | {"serviceAccount": "absent"}),
    "init-crash": Case(
        crashed(code=4),
        SERVE,
        pod=lambda pod: pod.update(
            initContainers=[{"name": "fetch", "image": IMAGE, **sh("echo no such bucket >&2; exit 4")}]
        ),
    ),
    "init-image": Case(
        waits("ImagePullBackOff"),
        SERVE,
        pod=lambda pod: pod.update(initContainers=[{"name": "fetch", "image": "127.0.0.1:5999/fetch:1"}]),
    ),
    "sandbox": Case(
        both(said("FailedCreatePodSandBox"), lambda objects: all("nodeName" in pod["spec"] for pod in objects["pods"])),
        SERVE,
        pod=lambda pod: pod.update(runtimeClassName="recorder-absent"),
        before=((RUNTIMES, {"metadata": {"name": "recorder-absent"}, "handler": "absent"}),),
    ),
    "mount": Case(
        said("FailedMount"),
        SERVE,
        pod=lambda pod: (
            pod.update(volumes=[{"name": "keys", "secret": {"secretName": "absent"}}])
            or container(pod, volumeMounts=[{"name": "keys", "mountPath": "/keys"}])
        ),
    ),
    "rejected": Case(
        phase("Failed", "OutOfmemory"),
        SERVE | {"resources": {"requests": {"memory": "900Gi"}}},
        pod=lambda pod: pod.update(nodeName="{node}"),
    ),
    "namespace-terminating": Case(
        lambda objects: (
            "deletionTimestamp" in objects["namespace"]["metadata"]
            and "deletionTimestamp" in (objects["statefulset"] or {}).get("metadata", {})
        ),
        SERVE,
        manifest=hold,
        first=ready(1),
        then=delete_namespace,
    ),
    "terminating": Case(
        lambda objects: "deletionTimestamp" in objects["statefulset"]["metadata"],
        SERVE,
        manifest=hold,
        first=ready(1),
        then=delete_statefulset,
    ),
    "stuck-update": Case(
        lambda objects: (
            objects["statefulset"]["status"]["observedGeneration"] == 2
            and objects["statefulset"]["status"]["currentRevision"]
            != objects["statefulset"]["status"]["updateRevision"]
        ),
        {"image": "127.0.0.1:5999/missing:1", "podManagementPolicy": "OrderedReady"},
        first=waits("ImagePullBackOff"),
        then=update(image=IMAGE, **SERVE),
    ),
    "node-lost": Case(
        both(condition("Ready", ""), said("NodeNotReady", about="Pod")),
        SERVE,
        pod=lambda pod: pod.update(nodeName="{hollow}"),
        first=ready(1),
        then=kill_node,
    ),
    "node-taken": Case(
        lambda objects: any("deletionTimestamp" in pod["metadata"] for pod in objects["pods"]),
        SERVE,
        pod=lambda pod: pod.update(
            nodeName="{hollow}",
            tolerations=[
                {
                    "key": f"node.kubernetes.io/{taint}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 1,
                }
                for taint in ("not-ready", "unreachable")
            ],
        ),
        first=ready(1),
        then=kill_node,
    ),
}
