"""Every fault that a real cluster showed (`recorded/`, made by `recorder/record.py`), and what is said of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.cluster import Diagnosis, PodRef, Snapshot, diagnose, parse, readiness, stuck_pods
from provisioner.cluster.findings.rules import GRACES, RULES
from provisioner.cluster.objects import Container, Event
from provisioner.spec import DataServiceSpec, parse_spec

RECORDED = sorted(path.stem for path in (Path(__file__).parent / "recorded").glob("*.json"))


@dataclass(frozen=True)
class Record:
    snapshot: Snapshot
    spec: DataServiceSpec
    at: datetime

    def after(self, seconds: float = 0.0, **options: Any) -> Diagnosis | None:
        return diagnose(self.snapshot, self.spec, self.at + timedelta(seconds=seconds), **options)


def record(name: str) -> Record:
    document = json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())
    snapshot = Snapshot(
        statefulset=parse.statefulset(document["statefulset"]),
        service=parse.service(document["service"]),
        pods=tuple(parse.pod(item) for item in document["pods"]),
        claims=tuple(parse.claim(item) for item in document["claims"]),
        events=tuple(sorted(map(parse.event, document["events"]), key=lambda event: event.last)),  # type: ignore[arg-type, return-value]
        namespace_deleted=parse.namespace(document["namespace"]).deleted,
    )
    return Record(snapshot, parse_spec(document["spec"]), datetime.fromisoformat(document["recordedAt"]))


# Case, reason, what its sentence must name.
TABLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "admission-policy": ("AdmissionDenied", ("recorder-owner", "every pod needs a label team")),
    "admission-security": ("AdmissionDenied", ('violates PodSecurity "restricted', "allowPrivilegeEscalation")),
    "admission-unavailable": ("AdmissionUnavailable", ("connection refused",)),
    "claim-class-missing": ("StorageClassMissing", ("data-store-0", "'absent' does not exist")),
    "claim-no-class": ("StorageClassMissing", ("data-store-0 of 1Mi", "names no storage class")),
    "claim-not-provided": ("ClaimNotBound", ("data-store-0", "'recorder-nobody'")),
    "command-not-found": ("ContainerStartFailed", ("'graph-store'", "executable file not found in $PATH")),
    "command-not-found-first": ("ContainerStartFailed", ("'graph-store'", "executable file not found in $PATH")),
    "crash": ("CrashLoop", ("exit code 3", "last line: no such shard")),
    "crash-127": ("CrashLoop", ("exit code 127 (the command was not found)", "graph-store: not found")),
    "crash-again": ("CrashLoop", ("exit code 1", "3 restarts so far", "last line: boom")),
    "crash-first": ("CrashLoop", ("exit code 1", "last line: boom")),
    "crash-running": ("CrashLoop", ("exit code 1",)),
    "crash-signal": ("CrashLoop", ("exit code 139 (SIGSEGV)", "Segmentation fault")),
    "crash-zero": ("CrashLoop", ("exit code 0",)),
    "image-invalid": ("ImageInvalid", ("'Not/An Image'",)),
    "image-never": ("ImageNeverPulled", ("'localhost/absent:1'", "node-1", "Never")),
    "image-no-such-host": ("RegistryUnreachable", ("'registry.invalid/store:404'", "no such host")),
    "image-not-found": ("ImageNotFound", ("'127.0.0.1:5998/nosuch:1'",)),
    "image-unauthorized": ("ImageUnauthorized", ("'127.0.0.1:5997/private:1'",)),
    "image-unreachable": ("RegistryUnreachable", ("'127.0.0.1:5999/missing:1'", "connection refused")),
    "image-unreachable-first": ("RegistryUnreachable", ("'127.0.0.1:5999/missing:1'", "connection refused")),
    "init-crash": ("InitContainerFailed", ("init container fetch", "exit code 4")),
    "init-image": ("RegistryUnreachable", ("init container fetch", "'127.0.0.1:5999/fetch:1'")),
    "liveness": ("LivenessProbeFailed", ("Liveness probe failed: dead lock", "exit code 137 (SIGKILL)")),
    "mount": ("MountFailed", ('volume "keys"', 'secret "absent" not found')),
    "namespace-terminating": ("NamespaceTerminating", ("namespace recorded-namespace-terminating",)),
    "node-lost": ("NodeLost", ("node hollow-1", "does not answer")),
    "node-taken": ("NodeLost", ("node hollow-1", "does not answer")),
    "out-of-memory": ("OutOfMemory", ("limit 16Mi", "exit code 137")),
    "quota": ("QuotaExceeded", ("quota small", "used: pods=2, limited: pods=2")),
    "readiness-exec": ("ReadinessProbeFailed", ("shard 3 of 9 loaded",)),
    "readiness-http": ("ReadinessProbeFailed", ("statuscode: 404",)),
    "readiness-refused": ("ReadinessProbeFailed", ("connection refused",)),
    "rejected": ("PodRejected", ("node-1", "OutOfmemory")),
    "sandbox": ("SandboxFailed", ("node-1", "absent")),
    "secret-key-missing": ("ConfigMissing", ("key token in Secret recorded-secret-key-missing/present",)),
    "secret-missing": ("ConfigMissing", ('secret "absent" not found',)),
    "service-account-missing": ("ServiceAccountMissing", ("'absent'",)),
    "startup": ("StartupProbeFailed", ("Startup probe failed", "exit code 137 (SIGKILL)")),
    "stuck-update": ("RegistryUnreachable", ("'127.0.0.1:5999/missing:1'",)),
    "terminating": ("Terminating", ("StatefulSet recorded-terminating/store",)),
    "unschedulable-gated": ("SchedulingGated", ("store-0",)),
    "unschedulable-memory": (
        "Unschedulable",
        ("0 of 1 nodes", "Insufficient memory", "asks for memory 900Gi", "1 more"),
    ),
    "unschedulable-selector": ("Unschedulable", ("0 of 1 nodes", "node affinity/selector")),
}
NOTHING_WRONG = {"paused", "quota-scaled-down", "ready", "rolling", "scaled", "starting"}


def test_every_recorded_case_is_judged() -> None:
    assert set(RECORDED) == TABLE.keys() | NOTHING_WRONG


@pytest.mark.parametrize("name", TABLE)
def test_a_recorded_fault_is_named_with_its_cause(name: str) -> None:
    reason, named = TABLE[name]
    diagnosis = record(name).after()
    assert diagnosis is not None
    assert diagnosis.reason == reason
    for text in named:
        assert text in diagnosis.summary
    assert "\n" not in diagnosis.summary
    assert "failed error" not in diagnosis.summary  # the wrapping of the controller tells nobody anything
    assert len(diagnosis.summary) <= 640
    assert diagnosis.hint
    assert diagnosis.since is not None
    assert f"recorded-{name}" in diagnosis.subject


@pytest.mark.parametrize("name", sorted(NOTHING_WRONG))
def test_nothing_is_said_of_what_is_as_it_should_be(name: str) -> None:
    assert record(name).after(3600) is None


@pytest.mark.parametrize("name", TABLE)
def test_a_fault_is_final_after_its_grace_and_not_before(name: str) -> None:
    reason, _ = TABLE[name]
    case = record(name)
    first = case.after()
    assert first is not None
    assert first.since is not None
    late = case.after(24 * 3600)
    assert late is not None
    if name in ("crash-running", "stuck-update") or RULES[reason].grace is None:
        assert not late.final
        return
    assert late.final
    assert late.level == "error"
    if name in ("crash-again", "namespace-terminating", "image-invalid"):
        assert first.final  # certain from the beginning
        return
    grace, age = GRACES[reason], (case.at - first.since).total_seconds()
    just_before = case.after(grace - age - 1)
    assert just_before is not None
    assert not just_before.final
    after = case.after(grace - age)
    assert after is not None
    assert after.final


@pytest.mark.parametrize("name", TABLE)
def test_nothing_is_final_that_is_not_fresh(name: str) -> None:
    case = record(name)
    stale = replace(case, snapshot=replace(case.snapshot, fresh=False, stale_reason="no word about pods for 50 s"))
    diagnosis = stale.after(24 * 3600)
    assert diagnosis is not None
    assert (diagnosis.reason, diagnosis.final, diagnosis.level) == ("ClusterUnreachable", False, "warning")
    assert "no word about pods for 50 s" in diagnosis.summary
    assert TABLE[name][1][0] in diagnosis.detail


@pytest.mark.parametrize("name", RECORDED)
def test_readiness_agrees_with_what_was_recorded(name: str) -> None:
    case = record(name)
    answer = readiness(case.snapshot, case.spec, case.spec.digest())
    assert answer.done is (name in {"paused", "quota-scaled-down", "ready", "scaled"})


@pytest.mark.parametrize("name", RECORDED)
def test_stuck_pods_are_found_in_the_stuck_update_alone(name: str) -> None:
    assert [pod.name for pod in stuck_pods(record(name).snapshot)] == (["store-0"] if name == "stuck-update" else [])


@pytest.mark.parametrize("name", TABLE)
def test_without_events_the_cause_is_still_named_where_the_objects_tell_it(name: str) -> None:
    case = record(name)
    blind = replace(case, snapshot=replace(case.snapshot, events=()))
    diagnosis = blind.after()
    only_events = {
        "admission-policy", "admission-security", "admission-unavailable", "mount", "node-lost", "quota", "sandbox",
        "service-account-missing", "readiness-exec", "readiness-http", "readiness-refused",
    }  # fmt: skip
    other = {"liveness": "CrashLoop", "startup": "CrashLoop", "claim-class-missing": "ClaimNotBound"}
    if name in only_events:
        assert diagnosis is None
    else:
        assert diagnosis is not None
        assert diagnosis.reason == other.get(name, TABLE[name][0])


def test_the_log_of_the_run_that_crashed_is_asked_for_and_shown() -> None:
    case = record("out-of-memory")
    diagnosis = case.after()
    assert diagnosis is not None
    assert diagnosis.wants_logs == PodRef("recorded-out-of-memory", "store-0", "data-service", previous=True)
    lines = "\n".join(f"line {number}" for number in range(30))
    told = case.after(logs={"store-0": lines})
    assert told is not None
    assert told.wants_logs is None
    assert told.detail.splitlines() == [f"line {number}" for number in range(20, 30)]
    assert told.summary.endswith("last line: line 29")
    silent = case.after(logs={"store-0": ""})
    assert silent is not None
    assert silent.wants_logs is None


def test_what_the_status_tells_already_is_not_asked_for() -> None:
    diagnosis = record("crash").after()
    assert diagnosis is not None
    assert diagnosis.wants_logs is None
    assert diagnosis.detail == "loading the graph\nno such shard"


def test_control_characters_of_others_do_not_reach_the_terminal() -> None:
    diagnosis = record("crash").after(logs={"store-0": "\x1b[31mred\x1b[0m\x07 alert\r\n\x9b2J"})
    assert diagnosis is not None
    assert diagnosis.detail == "red alert\n2J"


def test_a_service_that_ran_for_long_begins_a_new_row_of_crashes() -> None:
    """Five restarts in as many months are no crash loop."""
    case = record("crash-again")
    (pod,) = case.snapshot.pods
    (container,) = pod.containers
    last = container.last
    assert last is not None
    assert last.finished_at is not None
    calm = replace(last, started_at=last.finished_at - timedelta(days=30))
    changed = replace(pod, containers=(replace(container, last=calm),))
    diagnosis = replace(case, snapshot=replace(case.snapshot, pods=(changed,))).after()
    assert diagnosis is not None
    assert diagnosis.since == last.finished_at
    assert not diagnosis.final


def test_of_several_causes_the_final_one_wins_and_then_the_most_exact() -> None:
    crash, unscheduled = record("crash"), record("unschedulable-memory")
    (pod,) = crash.snapshot.pods
    other = replace(unscheduled.snapshot.pods[1], namespace=pod.namespace, revision=pod.revision)
    both = replace(crash, snapshot=replace(crash.snapshot, pods=(*crash.snapshot.pods, other)))
    first = both.after()
    assert first is not None
    assert first.reason == "CrashLoop"
    overruled = both.after(24 * 3600, graces={"Unschedulable": 0.0})
    assert overruled is not None
    assert (overruled.reason, overruled.final) == ("Unschedulable", True)


def test_a_refusal_of_a_pod_that_exists_by_now_is_over() -> None:
    case = record("quota")
    assert [pod.name for pod in case.snapshot.pods] == ["store-0", "store-2"]
    made = replace(case.snapshot.pods[0], name="store-1")
    assert replace(case, snapshot=replace(case.snapshot, pods=(made, case.snapshot.pods[1]))).after() is None


def test_the_graces_can_be_set() -> None:
    patient = record("image-not-found").after(3600, graces=GRACES | {"ImageNotFound": 7200.0})
    assert patient is not None
    assert not patient.final


def test_a_fault_of_the_former_specification_is_not_held_against_its_repair() -> None:
    case = record("image-not-found")
    repaired = replace(case, spec=parse_spec(case.spec.document() | {"image": "localhost/store:2"}))
    diagnosis = repaired.after(3600)
    assert diagnosis is not None
    assert not diagnosis.final
    assert diagnosis.level == "warning"


def test_a_service_that_somebody_scaled_is_still_of_its_specification() -> None:
    case = record("crash")
    scaled = replace(case, spec=case.spec.model_copy(update={"replicas": 7}))
    diagnosis = scaled.after(3600, digest=case.spec.digest())
    assert diagnosis is not None
    assert diagnosis.final


def test_the_event_of_an_earlier_pod_of_the_same_name_counts_only_as_its_eviction() -> None:
    case = record("starting")
    (pod,) = case.snapshot.pods
    said = Event(
        pod.namespace, "e", "Pod", pod.name, uid="earlier", reason="Evicted", message="low on memory", last=case.at
    )
    evicted = replace(case, snapshot=replace(case.snapshot, events=(said,)))
    diagnosis = evicted.after()
    assert diagnosis is not None
    assert (diagnosis.reason, diagnosis.final) == ("Evicted", False)
    assert "low on memory" in diagnosis.summary
    assert evicted.after(3600) is None  # long ago
    sandbox = replace(said, reason="FailedCreatePodSandBox")
    assert replace(case, snapshot=replace(case.snapshot, events=(sandbox,))).after() is None


# What containerd and registries of several kinds say; none of these can be had from a registry on loopback.
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("pull access denied, repository does not exist or may require authorization: server message: "
         "insufficient_scope: authorization failed", "ImageUnauthorized"),
        ("failed to authorize: failed to fetch anonymous token: unexpected status from GET request: 403 Forbidden",
         "ImageUnauthorized"),
        ("unexpected status from HEAD request to https://r.example.com/v2/a/manifests/1: 401 Unauthorized",
         "ImageUnauthorized"),
        ("toomanyrequests: You have reached your pull rate limit", "RegistryUnreachable"),
        ("failed to copy: httpReadSeeker: failed open: 503 Service Unavailable", "RegistryUnreachable"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "RegistryUnreachable"),
        ("dial tcp 10.0.0.1:443: i/o timeout", "RegistryUnreachable"),
        ("manifest unknown: manifest unknown", "ImageNotFound"),
        ("no match for platform in manifest: not found", "ImageNotFound"),
        ("write /var/lib/containerd: no space left on device", "ImagePullFailed"),
        ("", "ImagePullFailed"),
    ],
)  # fmt: skip
def test_what_a_registry_says_is_understood(said: str, reason: str) -> None:
    image = "registry.example.com/team/401:not-found-503"
    case = record("image-not-found")
    (pod,) = case.snapshot.pods
    waiting = Container("data-service", image, waiting_reason="ErrImagePull", waiting_message=f'"{image}": {said}')
    snapshot = replace(case.snapshot, pods=(replace(pod, containers=(waiting,)),), events=())
    diagnosis = replace(case, snapshot=snapshot).after()
    assert diagnosis is not None
    assert diagnosis.reason == reason
    assert repr(image) in diagnosis.summary


def test_an_older_kubelet_tells_the_cause_of_a_back_off_in_its_event_alone() -> None:
    case = record("image-not-found")
    (pod,) = case.snapshot.pods
    (container,) = pod.containers
    old = replace(container, waiting_message=f'Back-off pulling image "{container.image}"')
    snapshot = replace(case.snapshot, pods=(replace(pod, containers=(old,)),))
    diagnosis = replace(case, snapshot=snapshot).after()
    assert diagnosis is not None
    assert diagnosis.reason == "ImageNotFound"


def test_every_reason_has_a_next_step() -> None:
    assert all(rule.hint and rule.hint[0].islower() for rule in RULES.values())
    assert all(grace <= 60 or RULES[reason].waiting_helps for reason, grace in GRACES.items())
