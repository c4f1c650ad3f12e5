"""What a user of the sandbox relies on: pods, names, volumes, logs, and that strangers stay out."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import stat
from pathlib import Path

import pytest
import yaml

from provisioner.errors import PermanentError, UsageError
from provisioner.sandbox.images.python import Addition, build_python_image
from provisioner.sandbox.state import Layout


def plan_of(cluster):
    return Layout(cluster.sandbox.name, cluster.sandbox.kubeconfig.parent.parent).load()


def call(port: int, path: str, *, address: str = "127.0.0.1", cert=None, **headers: str) -> int:
    """The status of a GET by somebody who does not check the server."""
    context = ssl._create_unverified_context()  # noqa: S323 - a stranger does not care
    if cert:
        context.load_cert_chain(*cert)
    connection = http.client.HTTPSConnection(address, port, timeout=60, context=context)
    connection.request("GET", path, headers=headers)
    return connection.getresponse().status


def test_pods_run_find_each_other_by_name_and_keep_their_data(cluster, until) -> None:
    core = cluster.core
    core.create_namespaced_service(
        "default",
        {
            "metadata": {"name": "store"},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "store"}},
        },
    )
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    core.create_namespaced_persistent_volume_claim("default", claim)
    volume = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    cluster.run(
        "store-0",
        "echo kept > /data/file; echo hello > /index.html; exec httpd -f -p 8080 -h /",
        app="store",
        hostname="store-0",
        subdomain="store",
        volumes=volume,
        mounts=mounts,
    )
    until("the server is ready", lambda: cluster.ready("store-0"))
    assert cluster.nodes()["node-1"].metadata.name == cluster.node_of("store-0")
    name = "store-0.store.default.svc.cluster.local"
    cluster.run("asker", f"until wget -q -O - http://{name}:8080/index.html; do sleep 0.1; done", restartPolicy="Never")
    assert cluster.finished("asker") == "hello\n"
    assert cluster.execute("store-0", "cat /data/file; hostname") == "kept\nstore-0\n"
    cluster.delete("store-0", "asker")

    cluster.run("reader", "cat /data/file", restartPolicy="Never", volumes=volume, mounts=mounts)
    assert cluster.finished("reader") == "kept\n"
    cluster.delete("reader")
    volumes = [item.metadata.name for item in core.list_persistent_volume().items]
    core.delete_namespaced_persistent_volume_claim("data", "default")
    until("the volume is reclaimed", lambda: not core.list_persistent_volume().items)
    assert len(volumes) == 1
    core.delete_namespaced_service("store", "default")


def test_a_name_elsewhere_does_not_exist_for_pods_and_they_learn_it_at_once(cluster) -> None:
    cluster.run("lost", "nslookup -type=a registry.example 2>&1; true", restartPolicy="Never")
    assert "NXDOMAIN" in cluster.finished("lost")
    cluster.delete("lost")


def test_a_pod_reaches_the_api_server_with_its_own_token(cluster, until) -> None:
    archive = build_python_image([], name="localhost/plain-python:test")
    assert cluster.sandbox.load_image(archive) == ["localhost/plain-python:test"]
    program = """
import json, ssl, urllib.request as r
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = open(folder + "token").read()
call = r.Request("https://kubernetes.default.svc/version", headers={"Authorization": "Bearer " + token})
print(json.load(r.urlopen(call, context=ssl.create_default_context(cafile=folder + "ca.crt")))["major"])
"""
    cluster.run(
        "inside", f"python3 - <<'END'\n{program}\nEND", image="localhost/plain-python:test", restartPolicy="Never"
    )
    assert cluster.finished("inside") == "1\n"
    cluster.delete("inside")


def test_an_image_of_this_python_with_numpy_and_own_files(cluster, tmp_path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "work.py").write_text("import numpy\nprint(numpy.arange(4).sum())\n")
    archive = build_python_image(["numpy"], name="localhost/numpy:test", add=[Addition(app, "/app")])
    assert cluster.sandbox.load_image(archive) == ["localhost/numpy:test"]
    cluster.run("numpy", "python3 /app/work.py", image="localhost/numpy:test", restartPolicy="Never")
    assert cluster.finished("numpy") == "6\n"
    cluster.delete("numpy")


def test_another_file_is_no_image(cluster, tmp_path) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(UsageError, match="not an image archive"):
        cluster.sandbox.load_image(tmp_path / "x")


def test_an_archive_that_containerd_refuses_is_named(cluster, tmp_path) -> None:
    import tarfile
    from io import BytesIO

    broken = tmp_path / "broken.tar"
    with tarfile.open(broken, "w") as tar:
        text = json.dumps([{"Config": "missing", "RepoTags": ["localhost/broken:1"], "Layers": []}]).encode()
        info = tarfile.TarInfo("manifest.json")
        info.size = len(text)
        tar.addfile(info, BytesIO(text))
    with pytest.raises(PermanentError) as caught:
        cluster.sandbox.load_image(broken)
    assert caught.value.reason == "ImportFailed"
    assert str(broken) in str(caught.value)


def test_the_cause_of_a_failed_start_is_seen(cluster, until) -> None:
    # Nothing listens there, so the pull fails without leaving the machine.
    cluster.run("pull", image="127.0.0.1:5999/missing:1")
    cluster.run("crash", "echo last words; exit 3")
    cluster.run("large", resources=None, nodeSelector={"no": "such-node"})

    def waiting(name: str) -> str:
        (status,) = cluster.core.read_namespaced_pod(name, "default").status.container_statuses or [None]
        return status.state.waiting.reason if status and status.state.waiting else ""

    until("the pull fails", lambda: waiting("pull") in ("ErrImagePull", "ImagePullBackOff"))
    until("the crash loops", lambda: waiting("crash") == "CrashLoopBackOff")
    # It may be starting once more, with nothing said yet.
    until("its last words", lambda: cluster.log("crash") == "last words\n")
    cluster.delete("pull", "crash", "large")


def test_strangers_stay_out_of_every_server(cluster) -> None:
    plan = plan_of(cluster)
    ports, pki = plan.ports, cluster.sandbox.kubeconfig.parent / "pki"
    own = (pki / "coredns.crt", pki / "coredns.key")
    assert call(ports["kube-apiserver"], "/api/v1/pods") == 401
    assert call(ports["kube-apiserver"], "/version") == 401
    assert call(ports["kube-apiserver"], "/api/v1/pods", Authorization="Bearer wrong") == 401
    assert call(ports["kube-apiserver"], "/api/v1/secrets", cert=own) == 403
    assert call(ports["kube-apiserver"], "/api/v1/pods", cert=own) == 200
    assert call(ports["kubelet"], "/pods", address=plan.node_address) == 401
    assert call(ports["kubelet"], "/pods", address=plan.node_address, cert=own) == 403
    kubelet = (pki / "apiserver-kubelet-client.crt", pki / "apiserver-kubelet-client.key")
    assert call(ports["kubelet"], "/pods", address=plan.node_address, cert=kubelet) == 200
    for manager in ("kube-controller-manager", "kube-scheduler"):
        assert call(ports[manager], "/metrics") in (401, 403)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        call(ports["etcd"], "/health", cert=own)


def accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_only_dns_the_api_relay_and_kubelet_listen_beyond_loopback(cluster) -> None:
    plan = plan_of(cluster)
    addresses = [plan.node_address, plan.api_address]
    ours = {name: port for name, port in plan.ports.items() if name != "kubelet"}
    for address in [*addresses, *_machine_addresses()]:
        for name, port in ours.items():
            assert not accepts(address, port), name
    for address in _machine_addresses():
        assert not accepts(address, plan.ports["kubelet"])


def _machine_addresses() -> list[str]:
    """The machine's own addresses, as the route to elsewhere shows them (nothing is sent)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.99", 9))
        except OSError:
            return []
        return [probe.getsockname()[0]]


def test_a_node_may_only_speak_for_itself(cluster) -> None:
    pki = cluster.sandbox.kubeconfig.parent / "pki"
    own = (pki / "kubelet.crt", pki / "kubelet.key")
    port = plan_of(cluster).ports["kube-apiserver"]
    assert call(port, "/api/v1/nodes/node-1", cert=own) == 200
    assert call(port, "/api/v1/nodes/hollow-1", cert=own) == 403
    assert call(port, "/api/v1/secrets", cert=own) == 403


def test_the_kubeconfig_stands_alone_and_is_its_owners(cluster) -> None:
    path = cluster.sandbox.kubeconfig
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = yaml.safe_load(path.read_text())
    assert document["current-context"] == cluster.sandbox.context
    assert document["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
    assert b"BEGIN CERTIFICATE" in base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"])


def test_no_secret_stands_in_a_command_line_or_log(cluster) -> None:
    document = yaml.safe_load(cluster.sandbox.kubeconfig.read_text())
    token = document["users"][0]["user"]["token"].encode()
    status = cluster.sandbox.status()
    for item in status.processes:
        assert token not in Path(f"/proc/{item.pid}/cmdline").read_bytes()
        assert token not in item.log.read_bytes()
