"""How answers and failures of agents are read."""

from datetime import UTC, datetime

import grpc
import grpc.aio
import pytest
from flyteidl.admin import agent_pb2
from hypothesis import given
from hypothesis import strategies as st

from provisioner.registry.ask import announced_of, reason_of
from provisioner.registry.calls import Caller, code_of, passed_on, retry_delay
from provisioner.registry.changes import changes_between
from provisioner.registry.config import Deployment, RegistryConfig
from provisioner.registry.discovery import ServiceFacts, deployment_of
from provisioner.registry.report import for_people, remarks, rows_of
from provisioner.registry.table import EMPTY, Announced, Mode, Observation, build_table
from provisioner.registry.wire import FORWARDED


def agent(types=(), categories=(), **more):
    message = agent_pb2.Agent(name="c", supported_task_types=types, **more)
    for name, version in categories:
        message.supported_task_categories.add(name=name, version=version)
    return message


@pytest.mark.parametrize(
    ("types", "categories", "expected"),
    [
        ((), (("a", 0), ("a", 1)), (("a", 0), ("a", 1))),
        (("a",), (), (("a", 0),)),
        # flytekit fills in both: the plain name says nothing beyond the category.
        (("a",), (("a", 1),), (("a", 1),)),
        (("a", "b"), (("a", 1),), (("a", 1), ("b", 0))),
        (("a", "a"), (("b", 2), ("b", 2)), (("b", 2), ("a", 0))),
        (("", " ", "\x1b[31mred", "x" * 256, "ok"), (("\n", 0),), (("ok", 0),)),
    ],
)
def test_both_ways_to_announce(types, categories, expected):
    (found,) = announced_of([agent(types, categories)])
    assert found == Announced("c", Mode.ASYNC, expected)


def test_mode_and_names_are_taken_with_care():
    found = announced_of(
        [agent(("a",), is_sync=True), agent_pb2.Agent(name="\x1b]0;evil\x07", supported_task_types=["b"])]
    )
    assert [(item.name, item.mode) for item in found] == [("c", Mode.SYNC), ("(unnamed)", Mode.ASYNC)]


def failure(code, details):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("code", "details", "said"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "no answer within 3s"),
        (grpc.StatusCode.UNAVAILABLE, "failed to connect: connect: Connection refused (111)", "connection refused"),
        (grpc.StatusCode.UNAVAILABLE, "DNS resolution failed for x", "the name does not resolve"),
        (grpc.StatusCode.UNAVAILABLE, "errors resolving x:1: [Domain name not found]", "the name does not resolve"),
        (grpc.StatusCode.UNAVAILABLE, "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED", "TLS handshake failed"),
        (grpc.StatusCode.INTERNAL, "boom\n\x1b[31m", "INTERNAL: boom ?[31m"),
        (grpc.StatusCode.UNKNOWN, "", "UNKNOWN"),
    ],
)
def test_a_failure_is_said_in_a_few_words(code, details, said):
    assert reason_of(failure(code, details), 3.0).startswith(said)


@given(
    st.sampled_from(sorted(FORWARDED)),
    st.sampled_from(list(grpc.StatusCode)),
    st.integers(0, 1000),
    st.floats(-1, 60),
    st.floats(0, 1),
)
def test_only_what_is_safe_is_repeated_and_never_past_the_deadline(method, code, attempt, remaining, spread):
    delay = retry_delay(FORWARDED[method], code, attempt, remaining, spread)
    if delay is not None:
        assert method not in ("CreateTask", "ExecuteTaskSync")
        assert code is grpc.StatusCode.UNAVAILABLE
        assert 0 < delay < remaining
        assert delay <= 1


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        # As gRPC's own server drops a call that reaches it while it shuts down.
        (grpc.StatusCode.CANCELLED, "CANCELLED", grpc.StatusCode.UNAVAILABLE),
        (grpc.StatusCode.CANCELLED, "the job was cancelled", grpc.StatusCode.CANCELLED),
        (grpc.StatusCode.UNAVAILABLE, "x", grpc.StatusCode.UNAVAILABLE),
        (grpc.StatusCode.INTERNAL, "CANCELLED", grpc.StatusCode.INTERNAL),
    ],
)
def test_a_dropped_call_counts_as_unavailable(code, details, expected):
    assert code_of(failure(code, details)) is expected


def test_delays_grow():
    delays = [retry_delay(FORWARDED["GetTask"], grpc.StatusCode.UNAVAILABLE, attempt, 60, 1.0) for attempt in range(8)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.05, 1.0)


@pytest.mark.parametrize(
    ("time_left", "own", "least", "most"),
    [(None, None, None, None), (5, None, 4, 5), (None, 5, 4, 5), (5, 9, 4, 5), (9, 5, 4, 5), (0, 5, 0, 0)],
)
def test_the_shorter_time_holds(time_left, own, least, most):
    left = Caller(time_left=time_left).left(own)
    assert (left is None) if least is None else least <= left <= most


def test_what_belongs_to_the_connection_stays_there():
    metadata = (
        ("user-agent", "x"),
        ("grpc-timeout", "1S"),
        (":path", "/"),
        ("te", "trailers"),
        ("authorization", "b"),
        ("x-bin", b"\0"),
    )
    assert passed_on(metadata) == (("authorization", "b"), ("x-bin", b"\0"))
    assert passed_on(None) == ()


# --- tables in words --------------------------------------------------------------------------------------------


def table(now=100.0, **seen):
    agents = tuple(Deployment(name, f"{name}:1") for name in sorted(seen))
    return build_table(RegistryConfig("t", agents=agents), seen, now=now, stale_after=60.0)


def serves(*types, error="", at=100.0):
    return Observation((Announced("c", Mode.ASYNC, tuple((name, 0) for name in types)),), answered_at=at, error=error)


def said(before, after):
    return [
        (change.message, change.values.get("agent"), change.values.get("task"))
        for change in changes_between(before, after)
    ]


def test_nothing_is_said_when_nothing_changes():
    assert said(table(a=serves("t")), table(a=serves("t", at=110.0), now=110.0)) == []


def test_each_change_is_said_once():
    first, silent = table(a=serves("t")), table(a=serves("t", error="away"), now=120.0)
    assert said(EMPTY, first) == [("agent is watched", "a", None), ("task type is served", "a", "t (0)")]
    assert said(first, silent) == [("agent does not answer", "a", None)]
    assert said(silent, table(a=serves("t", error="away"), now=130.0)) == []
    assert said(silent, table(a=serves("t", at=140.0), now=140.0)) == [("agent answers again", "a", None)]
    assert said(silent, table(a=serves("t", error="away"), now=200.0)) == [
        ("agent has been silent too long, its entries are dropped", "a", None),
        ("task type is no longer served", "a", "t (0)"),
    ]
    both = table(a=serves("t"), b=serves("t"))
    assert ("several agents announce a task type", "a", "t (0)") in said(first, both)
    assert said(both, both) == []
    assert ("task type is served differently", "b", "t (0)") in said(first, table(b=serves("t")))
    assert ("agent is no longer watched", "a", None) in said(first, table(b=serves("t")))


def test_rows_say_where_why_and_since_when():
    clock = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
    found = rows_of(
        table(a=serves("t"), b=serves("t", error="away", at=55.0), c=Observation(error="refused")),
        now=100.0,
        clock=clock,
    )
    assert found[0] == {
        "task_type": "t",
        "version": 0,
        "mode": "async",
        "agent": "a",
        "endpoint": "a:1",
        "why": "announced",
        "last_seen": "2030-01-01T12:00:00+00:00",
        "stale": False,
        "conflicts": ["b"],
        "overrides": [],
        "problem": None,
    }
    assert [(row["task_type"], row["agent"], row["problem"]) for row in found[1:]] == [
        (None, "b", "away"),
        (None, "c", "refused"),
    ]
    shown = [for_people(row, clock=clock) for row in found]
    assert [row["last_seen"] for row in shown] == ["now", "45s ago", "never"]
    assert [row["stale"] for row in shown] == ["no", "yes", "yes"]
    assert [row["conflicts"] for row in shown] == ["b", None, None]


def test_remarks_name_what_is_wrong():
    found = list(remarks(table(a=serves("t"), b=serves("t", error="away"), c=serves("u", error="gone", at=10.0))))
    assert found == [
        "agent b does not answer: away; its entries are kept for now",
        "agent c does not answer: gone; its entries have been dropped",
        "t (0) is announced by b too; a comes first and gets it",
    ]


# --- Services as agents -----------------------------------------------------------------------------------------

P = "data-service-provisioner/"


@pytest.mark.parametrize(
    ("annotations", "ports", "expected"),
    [
        ({}, (("", "", 81),), ("dns:///n.ns.svc.cluster.local:81", True, None)),
        ({}, (("http", "", 80), ("grpc", "", 90)), ("dns:///n.ns.svc.cluster.local:90", True, None)),
        ({}, (("x", "", 80), ("y", "kubernetes.io/h2c", 91)), ("dns:///n.ns.svc.cluster.local:91", True, None)),
        ({}, (("x", "", 80), ("y", "", 90)), ("dns:///n.ns.svc.cluster.local:8000", True, None)),
        ({P + "port": "77"}, (("grpc", "", 90),), ("dns:///n.ns.svc.cluster.local:77", True, None)),
        ({P + "endpoint": "other:1", P + "insecure": "false", P + "timeout": "1m"}, (), ("other:1", False, 60)),
    ],
)
def test_a_service_as_an_agent(annotations, ports, expected):
    found = deployment_of(ServiceFacts("ns", "n", annotations, ports), "cluster.local")
    assert (found.endpoint, found.insecure, found.timeout("GetTask")) == expected
    assert found.id == "ns/n"


@pytest.mark.parametrize(
    ("name", "value"), [("port", "0"), ("port", "x"), ("port", "70000"), ("insecure", "perhaps"), ("timeout", "10")]
)
def test_a_wrong_annotation_is_named(name, value):
    with pytest.raises(ValueError, match=f"annotation {P}{name}"):
        deployment_of(ServiceFacts("ns", "n", {P + name: value}, ()), "cluster.local")
