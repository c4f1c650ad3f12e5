"""What is said of each kind of entry."""

from types import MappingProxyType

import pytest

from provisioner.registry.check import Verdict, check, combined
from provisioner.registry.config import Deployment, Note, NoteKind, RegistryConfig
from provisioner.registry.table import Announced, Mode, Observation, build_table


def config(agents="", default=True, explicit=None, supported=(), notes=()):
    return RegistryConfig(
        source="test",
        default=Deployment("defaultAgent", "d:1", insecure=True) if default else None,
        agents=tuple(Deployment(name, f"{name}:1") for name in agents.split()),
        explicit=MappingProxyType(explicit or {}),
        supported=supported,
        notes=notes,
    )


def serves(*types, **more):
    return Observation((Announced("c", Mode.ASYNC, tuple((name, 0) for name in types)),), answered_at=1.0, **more)


DEAD = Observation(error="connection refused")
MUTE = Observation(answered_at=1.0)
GATEWAY = {"gateway": "g"}

CASES = [
    # explicit entries
    (
        "announced anyway",
        config("a", explicit={"t": "a"}),
        {"a": serves("t")},
        "agentForTaskTypes.t",
        Verdict.UNNECESSARY,
    ),
    (
        "decides a conflict",
        config("a b", explicit={"t": "b"}),
        {"a": serves("t"), "b": serves("t")},
        "agentForTaskTypes.t",
        Verdict.NEEDED,
    ),
    ("no such agent", config("a", explicit={"t": "z"}), {"a": serves("t")}, "agentForTaskTypes.t", Verdict.WRONG),
    (
        "the default's id",
        config("a", explicit={"t": "defaultAgent"}),
        {"a": serves("t")},
        "agentForTaskTypes.t",
        Verdict.WRONG,
    ),
    ("agent serves others", config("a", explicit={"t": "a"}), {"a": serves("u")}, "agentForTaskTypes.t", Verdict.WRONG),
    ("agent away", config("a", explicit={"t": "a"}), {"a": DEAD}, "agentForTaskTypes.t", Verdict.UNKNOWN),
    ("agent says nothing", config("a", explicit={"t": "a"}), {"a": MUTE}, "agentForTaskTypes.t", Verdict.NEEDED),
    # supportedTaskTypes
    ("announced", config("a", supported=("t",)), {"a": serves("t")}, "supportedTaskTypes", Verdict.UNNECESSARY),
    (
        "explicit first",
        config("a", supported=("t",), explicit={"t": "a"}),
        {"a": MUTE},
        "supportedTaskTypes",
        Verdict.SHADOWED,
    ),
    (
        "nobody",
        config("a", supported=("t",)),
        {"a": serves("u"), "defaultAgent": serves("v")},
        "supportedTaskTypes",
        Verdict.WRONG,
    ),
    ("perhaps the silent one's", config("a", supported=("t",)), {"a": DEAD}, "supportedTaskTypes", Verdict.UNKNOWN),
    (
        "the default says nothing",
        config("", supported=("t",)),
        {"defaultAgent": MUTE},
        "supportedTaskTypes",
        Verdict.NEEDED,
    ),
    (
        "no default",
        config("a", default=False, supported=("t",)),
        {"a": serves("u")},
        "supportedTaskTypes",
        Verdict.WRONG,
    ),
    # agents
    ("serves", config("a"), {"a": serves("t")}, "agents.a", Verdict.NEEDED),
    ("all lost", config("a b"), {"a": serves("t"), "b": serves("t")}, "agents.b", Verdict.SHADOWED),
    (
        "all lost but named",
        config("a b", explicit={"t": "b"}),
        {"a": serves("t"), "b": serves("t")},
        "agents.b",
        Verdict.NEEDED,
    ),
    ("away", config("a"), {"a": DEAD}, "agents.a", Verdict.UNKNOWN),
    # the default agent
    ("default", config("a"), {"a": serves("t"), "defaultAgent": serves("u")}, "defaultAgent", Verdict.NEEDED),
    ("default away", config("a"), {"a": serves("t"), "defaultAgent": DEAD}, "defaultAgent", Verdict.UNKNOWN),
]


def judged(registry, propeller, seen, task_plugins=None):
    everyone = combined(registry, propeller)
    answers = {item.id: seen.get(item.id.removeprefix("propeller/"), MUTE) for item in everyone.deployments}
    table = build_table(everyone, answers, now=1.0, stale_after=0.0)
    return check(registry, propeller, task_plugins or {}, table)


@pytest.mark.parametrize(
    ("cfg", "seen", "entry", "verdict"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_entry(cfg, seen, entry, verdict):
    found = [item for item in judged(cfg, cfg, seen) if item.entry == entry]
    assert [item.verdict for item in found] == [verdict]
    assert found[0].reason


def test_two_names_for_one_endpoint():
    cfg = RegistryConfig("test", agents=(Deployment("a", "same:1"), Deployment("b", "same:1")))
    found = {item.entry: item.verdict for item in judged(cfg, cfg, {"a": serves("t"), "b": serves("t")})}
    assert found == {"agents.a": Verdict.NEEDED, "agents.b": Verdict.SHADOWED}


def test_once_the_gateway_is_the_default_agent_the_rest_is_unnecessary():
    registry = config("a b", default=False)
    propeller = config("a", explicit={"t": "a"}, supported=("u",))
    seen = {"a": serves("t"), "b": serves("u"), "defaultAgent": serves("t", "u", **GATEWAY)}
    found = {item.entry: item.verdict for item in judged(registry, propeller, seen)}
    assert found == {
        "defaultAgent": Verdict.NEEDED,
        "agents.a": Verdict.UNNECESSARY,
        "agentForTaskTypes.t": Verdict.UNNECESSARY,
        "supportedTaskTypes": Verdict.UNNECESSARY,
    }


def test_an_entry_that_leads_past_the_gateway_to_another_agent_is_wrong():
    registry, propeller = config("a b", default=False), config("b", explicit={"t": "b"})
    seen = {"a": serves("t"), "b": serves("t"), "defaultAgent": serves("t", **GATEWAY)}
    found = {item.entry: item for item in judged(registry, propeller, seen)}
    assert found["agentForTaskTypes.t"].verdict is Verdict.WRONG
    assert "past the gateway, which sends this type to a" in found["agentForTaskTypes.t"].reason


def test_an_agent_that_the_registry_does_not_know_is_wrong():
    registry, propeller = config("a", default=False), config("a new")
    seen = {"a": serves("t"), "new": serves("n"), "defaultAgent": serves("t", **GATEWAY)}
    found = {item.entry: item for item in judged(registry, propeller, seen)}
    assert found["agents.new"].verdict is Verdict.WRONG
    assert "(n)" in found["agents.new"].reason


def test_the_propellers_other_list_is_judged_too():
    cfg = config("a", supported=("s",))
    plugins = {
        "default-for-task-types": [
            {"t": "agent-service"},
            {"s": "agent-service"},
            {"u": "connector-service"},
            {"c": "container"},
        ]
    }
    seen = {"a": serves("t"), "defaultAgent": serves("v")}
    found = {
        item.entry: item.verdict for item in judged(cfg, cfg, seen, plugins) if item.entry.startswith("default-for")
    }
    assert found == {
        "default-for-task-types.t": Verdict.UNNECESSARY,
        "default-for-task-types.s": Verdict.UNNECESSARY,
        "default-for-task-types.u": Verdict.WRONG,
    }


def test_misspelt_and_repeated_entries_are_findings_and_the_worst_comes_first():
    notes = (
        Note("agent-service.x", "", "is not known here", NoteKind.UNKNOWN),
        Note("agent-service.agentForTaskTypes.t", "b", "is replaced by a later one", NoteKind.REPEATED),
        Note("agent-service.y", "", "left out", NoteKind.LEFT_OUT),
    )
    found = judged(config("a", notes=notes), config("a", notes=notes), {"a": serves("t"), "defaultAgent": MUTE})
    assert [item.verdict for item in found] == [Verdict.WRONG, Verdict.SHADOWED, Verdict.NEEDED, Verdict.NEEDED]
