"""A secret reaches the pod and nobody else: not the state, a log, an event, a preview, an output or the meta."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from provisioner.control.request import ServiceRequest
from provisioner.flyte.meta import DataServiceMeta, Wanted
from provisioner.identity import for_name
from provisioner.sealing import Sealer
from provisioner.spec import parse_spec
from provisioner.toolchain import pulumi_home

FIRST, SECOND = "correct horse battery", "staple & <tape>"


def forms(value: str) -> list[str]:
    """As it could stand somewhere without being recognised at once."""
    return [value, base64.b64encode(value.encode()).decode(), json.dumps(value)[1:-1], value.encode().hex()]


def contents(folder: Path) -> str:
    """All that stands in the files of a folder, also in compressed ones."""
    texts = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            # A log may be compressed by another process just now: as far as it goes.
            plain = zlib.decompressobj(wbits=31).decompress(data) if data[:2] == b"\x1f\x8b" else data
            texts.append(plain.decode(errors="replace"))
    return "\n".join(texts)


def assert_hidden(text: str, where: str) -> None:
    for value in (FIRST, SECOND):
        for form in forms(value):
            assert form not in text, f"{value!r} as {form!r} is in {where}"


def test_a_secret_is_read_by_the_pod_and_found_nowhere_else(run, kube, apply, file, spec, backend, settings):
    said = []

    def told(ran: Any) -> Any:
        said.append(f"{ran.out}\n{ran.err}")
        return ran

    told(apply(replicas=2, env={"TOKEN": {"secret": FIRST}})).ok()
    assert kube.exec("graph-1", 'printf %s "$TOKEN"') == FIRST
    uid, pod = kube.uid("Secret", "graph"), kube.uid("Pod", "graph-0")
    assert told(apply(replicas=2, env={"TOKEN": {"secret": FIRST}})).ok().row["changes"] == []

    # Another value: the object is changed in place, and the pods are made anew, since they read it at their start.
    told(run("preview", "-f", file(spec(replicas=2, env={"TOKEN": {"secret": SECOND}, "MORE": {"secret": FIRST}}))))
    told(run("preview", "-o", "json", "-f", file(spec(replicas=2, env={"TOKEN": {"secret": SECOND}}))))
    told(apply(replicas=2, env={"TOKEN": {"secret": SECOND}})).ok()
    assert kube.exec("graph-0", 'printf %s "$TOKEN"') == SECOND
    assert (kube.uid("Secret", "graph"), kube.uid("Pod", "graph-0") == pod) == (uid, False)

    # Back, from what was recorded: the history can be opened, and shows nothing.
    told(run("history", "graph", "-o", "json")).ok()
    told(run("rollback", "graph", "-o", "json")).ok()
    assert kube.exec("graph-0", 'printf %s "$TOKEN"') == FIRST

    kube.patch("Secret", "graph", {"stringData": {"TOKEN": SECOND}})
    drift = told(run("drift", "graph", "-o", "json"))
    assert (drift.code, [item["path"] for item in drift.json]) == (3, ["data.TOKEN"])
    for words in (["status", "graph", "-o", "json"], ["outputs", "graph"], ["events", "graph"], ["list"]):
        told(run(*words)).ok()

    assert_hidden("\n".join(said), "what the commands print")
    # It is there, sealed; else this would be a look at the wrong place.
    assert '"sealed": "v1:' in contents(backend).replace('":"', '": "')
    assert_hidden(contents(backend), "the state")
    assert_hidden(contents(pulumi_home() / "logs"), "the engine's logs")
    objects = [kube.list(kind) for kind in ("StatefulSet", "Service", "Pod", "Event")]
    assert_hidden(json.dumps(objects), "the objects beside the Secret")
    secret = kube.get("Secret", "graph")
    assert_hidden(json.dumps(secret["metadata"]), "the Secret's metadata")

    identity = for_name("p", "d", namespace=kube.namespace, name="graph")
    wanted = Sealer.of(settings).sealed(parse_spec(spec(env={"TOKEN": {"secret": FIRST}})), identity.stack)
    meta = DataServiceMeta(Wanted(ServiceRequest(identity, wanted, 0.0), ())).encode()
    assert_hidden(meta.decode(errors="replace"), "the resource meta")
    told(run("delete", "graph")).ok()
    assert kube.names("Secret") == []
    assert_hidden(contents(backend), "the state after the end")


def test_a_variable_from_a_secret_of_somebody_else(kube, apply):
    kube.create("Secret", "theirs", stringData={"key": FIRST})
    apply(env={"TOKEN": {"secretKeyRef": {"name": "theirs", "key": "key"}}}).ok()
    assert kube.exec("graph-0", 'printf %s "$TOKEN"') == FIRST
    assert kube.names("Secret") == ["Secret/theirs"]


def test_another_passphrase_is_told_before_anything_is_changed(run, kube, apply, tmp_path, monkeypatch):
    apply(env={"TOKEN": {"secret": FIRST}}).ok()
    before = kube.get("StatefulSet", "graph")["metadata"]["resourceVersion"]
    monkeypatch.setenv("PROVISIONER_PASSPHRASE", "not the one")
    wrong = run("scale", "graph", "--replicas", "2")
    assert wrong.code == 1
    assert "secret of variable TOKEN cannot be opened" in wrong.err
    assert kube.get("StatefulSet", "graph")["metadata"]["resourceVersion"] == before
