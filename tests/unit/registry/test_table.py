"""The rules of routing, as a table and as properties."""

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.registry.config import Deployment, RegistryConfig
from provisioner.registry.table import EMPTY, Announced, Mode, Observation, Why, build_table

STALE_AFTER = 60.0


def deployment(name, endpoint=""):
    return Deployment(id=name, endpoint=endpoint or f"{name}:8000")


def config(*agents, default=None, explicit=None, supported=()):
    return RegistryConfig(
        source="test",
        default=deployment(default) if default else None,
        agents=tuple(deployment(item) if isinstance(item, str) else item for item in agents),
        explicit=MappingProxyType(explicit or {}),
        supported=supported,
    )


def answer(*categories, mode=Mode.ASYNC, at=100.0, **more):
    return Observation((Announced("connector", mode, tuple(categories)),), answered_at=at, **more)


def table(cfg, now=100.0, **observations):
    return build_table(cfg, observations, now=now, stale_after=STALE_AFTER)


A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)

RULES = [
    # what is announced
    ("announced", config("x"), {"x": answer(A0)}, A0, ("x", Why.ANNOUNCED)),
    ("another version", config("x"), {"x": answer(A0)}, A1, None),
    ("each version to its own", config("x", "y"), {"x": answer(A0), "y": answer(A1)}, A1, ("y", Why.ANNOUNCED)),
    ("first in order wins", config("x", "y"), {"x": answer(A0), "y": answer(A0)}, A0, ("x", Why.ANNOUNCED)),
    ("order, not name", config("y", "x"), {"x": answer(A0), "y": answer(A0)}, A0, ("y", Why.ANNOUNCED)),
    ("named before default", config("x", default="d"), {"x": answer(A0), "d": answer(A0)}, A0, ("x", Why.ANNOUNCED)),
    ("default announces too", config("x", default="d"), {"d": answer(B0)}, B0, ("d", Why.ANNOUNCED)),
    # explicit
    ("explicit", config("x", "y", explicit={"a": "y"}), {"x": answer(A0)}, A0, ("y", Why.EXPLICIT)),
    ("explicit, every version", config("x", "y", explicit={"a": "y"}), {"x": answer(A1)}, A1, ("y", Why.EXPLICIT)),
    (
        "explicit, agent silent",
        config("x", "y", explicit={"a": "y"}),
        {"y": Observation(error="no")},
        A0,
        ("y", Why.EXPLICIT),
    ),
    (
        "explicit, default named",
        config("x", default="d", explicit={"a": "d"}),
        {"x": answer(A0)},
        A0,
        ("d", Why.EXPLICIT),
    ),
    ("explicit, nobody", config("x", explicit={"a": "z"}), {"x": answer(A0)}, A0, ("x", Why.ANNOUNCED)),
    ("explicit, nobody, default", config("x", default="d", explicit={"a": "z"}), {}, A0, ("d", Why.DEFAULT)),
    # default
    ("default", config("x", default="d"), {"x": answer(B0)}, A0, ("d", Why.DEFAULT)),
    ("default for a version", config("x", default="d"), {"x": answer(A0)}, A1, ("d", Why.DEFAULT)),
    ("supported", config("x", default="d", supported=("a",)), {}, A0, ("d", Why.DEFAULT)),
    ("supported, announced", config("x", default="d", supported=("a",)), {"x": answer(A0)}, A0, ("x", Why.ANNOUNCED)),
    ("supported, no default", config("x", supported=("a",)), {}, A0, None),
    ("nobody", config("x"), {}, A0, None),
    # silence
    ("silent, young", config("x"), {"x": answer(A0, at=41.0, error="no")}, A0, ("x", Why.ANNOUNCED)),
    ("silent, old", config("x"), {"x": answer(A0, at=39.0, error="no")}, A0, None),
    ("silent, old, default", config("x", default="d"), {"x": answer(A0, at=39.0, error="no")}, A0, ("d", Why.DEFAULT)),
    (
        "silent keeps its place",
        config("x", "y"),
        {"x": answer(A0, at=50.0, error="no"), "y": answer(A0)},
        A0,
        ("x", Why.ANNOUNCED),
    ),
    (
        "expired gives it up",
        config("x", "y"),
        {"x": answer(A0, at=10.0, error="no"), "y": answer(A0)},
        A0,
        ("y", Why.ANNOUNCED),
    ),
    ("old but answering", config("x"), {"x": answer(A0, at=10.0)}, A0, ("x", Why.ANNOUNCED)),
    # the gateway itself
    ("itself as default", config("x", default="d"), {"d": Observation(error="i", itself=True)}, A0, None),
    ("itself, explicit", config("x", explicit={"a": "x"}), {"x": Observation(error="i", itself=True)}, A0, None),
]


@pytest.mark.parametrize(
    ("cfg", "seen", "task", "expected"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES]
)
def test_rule(cfg, seen, task, expected):
    route = table(cfg, **seen).resolve(*task)
    assert (route and (route.agent, route.why)) == expected


def test_a_conflict_is_reported_and_an_explicit_entry_settles_it():
    seen = {"x": answer(A0), "y": answer(A0), "z": answer(A0, B0)}
    found = table(config("x", "y", "z"), **seen)
    assert [(route.task_type, route.agent, route.others) for route in found.conflicts] == [("a", "x", ("y", "z"))]
    settled = table(config("x", "y", "z", explicit={"a": "z"}), **seen)
    assert settled.conflicts == ()
    assert settled.resolve(*A0).others == ("x", "y")


def test_one_endpoint_under_two_names_is_no_conflict():
    agents = [deployment("x", "same:1"), deployment("y", "same:1")]
    assert table(config(*agents), x=answer(A0), y=answer(A0)).conflicts == ()


def test_a_gateway_that_repeats_its_agents_is_no_rival():
    assert table(config("x", default="d"), x=answer(A0), d=answer(A0, gateway="g")).conflicts == ()


def test_the_mode_is_what_the_agent_announces():
    seen = {"x": answer(A0, mode=Mode.SYNC), "y": answer(A1)}
    assert table(config("x", "y"), **seen).resolve(*A0).mode is Mode.SYNC
    assert table(config("x", "y", explicit={"a": "x"}), **seen).resolve(*A1).mode is Mode.SYNC
    assert table(config("x", "y", explicit={"a": "y"}), **seen).resolve(*A0).mode is Mode.ASYNC
    assert table(config("x", "y", explicit={"b": "y"}), **seen).resolve(*B0).mode is Mode.ASYNC


def test_the_union_shows_each_type_once_with_the_winners_mode():
    seen = {"x": answer(A0, mode=Mode.SYNC), "y": answer(A0, A1, B0)}
    union = table(config("x", "y", default="d", explicit={"c": "d"}, supported=("s",)), **seen).union
    assert {item.mode: item.categories for item in union if item.name.startswith("connector")} == {
        Mode.SYNC: (A0,),
        Mode.ASYNC: (A1, B0),
    }
    assert {item.name for item in union} == {"connector (sync)", "connector (async)", "d"}
    assert next(item for item in union if item.name == "d").categories == (("c", 0), ("s", 0))


def test_the_union_of_an_explicit_entry_has_the_versions_that_are_announced():
    union = table(config("x", "y", explicit={"a": "y"}), x=answer(A0, A1)).union
    assert [(item.name, item.categories) for item in union] == [("y", (A0, A1))]


def test_what_is_known_is_said_in_a_few_words():
    seen = {"x": answer(*((f"t{number:02}", 0) for number in range(30)))}
    assert table(config("x"), **seen).describe_known(limit=2) == "t00 (0), t01 (0) and 28 more"
    assert (
        table(config("x", explicit={"a": "x"}), x=answer(B0, ("b", 2))).describe_known()
        == "a (every version), b (0, 2)"
    )
    assert EMPTY.describe_known() == "none"


def test_a_table_cannot_be_changed():
    found = table(config("x"), x=answer(A0))
    with pytest.raises(TypeError):
        found.types["b"] = {}
    with pytest.raises(TypeError):
        found.types["a"][0] = None
    with pytest.raises(AttributeError):
        found.default = None


# --- properties -------------------------------------------------------------------------------------------------

ids = st.sampled_from(["x", "y", "z", "w"])
categories = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2))
announced = st.builds(
    Announced,
    st.sampled_from(["one", "two"]),
    st.sampled_from(Mode),
    st.lists(categories, max_size=4, unique=True).map(tuple),
)
observations = st.builds(
    Observation,
    st.lists(announced, max_size=2).map(tuple),
    answered_at=st.floats(0, 100),
    error=st.sampled_from(["", "no answer"]),
)
configs = st.builds(
    lambda names, default, explicit, supported: config(
        *names, default=default, explicit=explicit, supported=tuple(supported)
    ),
    st.lists(ids, max_size=4, unique=True),
    st.sampled_from([None, "d"]),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y", "z", "w", "nobody"]), max_size=2),
    st.lists(st.sampled_from(["a", "e"]), max_size=2, unique=True),
)
worlds = st.dictionaries(st.sampled_from(["x", "y", "z", "w", "d"]), observations)
tasks = st.tuples(st.sampled_from(["a", "b", "c", "e", "unheard"]), st.integers(-1, 3))


@given(configs, worlds, tasks)
def test_routing_is_total_and_leads_to_an_agent_that_is_there(cfg, seen, task):
    found = table(cfg, **seen)
    route = found.resolve(*task)
    if cfg.default is not None:
        assert route is not None
    if route is not None:
        assert route.agent in {item.id for item in cfg.deployments}
    for item in found.routes:
        assert item.agent in found.agents


@given(configs, worlds)
def test_it_is_the_same_for_the_same_values(cfg, seen):
    assert table(cfg, **seen) == table(cfg, **seen)


@given(configs, worlds, st.randoms())
def test_the_order_in_which_answers_arrive_does_not_matter(cfg, seen, chance):
    shuffled = list(seen.items())
    chance.shuffle(shuffled)
    assert table(cfg, **seen) == table(cfg, **dict(shuffled))


@given(configs, worlds, st.randoms())
def test_the_order_of_explicit_entries_does_not_matter(cfg, seen, chance):
    entries = list(cfg.explicit.items())
    chance.shuffle(entries)
    other = replace(cfg, explicit=MappingProxyType(dict(entries)))
    assert table(cfg, **seen).routes == table(other, **seen).routes


@given(configs, worlds, st.sets(st.sampled_from(["x", "y", "z", "w", "d"])), st.floats(0, STALE_AFTER))
def test_a_round_with_failures_loses_no_entry_that_is_young_enough(cfg, seen, failing, later):
    good = {name: replace(item, error="", answered_at=100.0) for name, item in seen.items()}
    before = table(cfg, now=100.0, **good)
    bad = {name: replace(item, error="no answer") if name in failing else item for name, item in good.items()}
    after = table(cfg, now=100.0 + later, **bad)
    key = lambda route: (route.task_type, route.version, route.agent, route.mode, route.why)  # noqa: E731
    assert [key(route) for route in before.routes] == [key(route) for route in after.routes]
    for route in after.routes:
        assert route.stale == (route.agent in failing and route.agent in seen)


@given(configs, worlds)
def test_every_announced_type_is_in_the_union_once(cfg, seen):
    found = table(cfg, **seen)
    listed = [category for item in found.union for category in item.categories]
    assert len(listed) == len(set(listed))
    for route in found.routes:
        if route.task_type and route.version is not None:
            assert (route.task_type, route.version) in listed


@given(configs, worlds, tasks)
def test_an_explicit_entry_always_wins(cfg, seen, task):
    wanted = cfg.explicit.get(task[0])
    if wanted in {item.id for item in cfg.deployments}:
        assert table(cfg, **seen).resolve(*task).agent == wanted
