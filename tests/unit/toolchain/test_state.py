"""From what was found to a state, from states to a plan."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.toolchain import pins
from provisioner.toolchain.pins import Kit, Package, Pin
from provisioner.toolchain.probe import Candidate
from provisioner.toolchain.record import File, Record, Source
from provisioner.toolchain.state import Condition, Observation, State, decide, judge, space_needed_gb

ETCD = pins.load().find("etcd")
RUNC = pins.load().find("runc")
HOST = pins.load().find("pulumi-language-python")


def recorded(pin: Pin, version: str, source: Source = "cache") -> Record:
    file = File(path=Path("toolchain") / pin.name, size=7, modified=1, digest="d", executable=True)
    return Record(name=pin.name, version=version, source=source, origin="somehow", files=(file,))


def found(pin: Pin, version: str, fault: str = "", source: Source = "path") -> Candidate:
    return Candidate(Path("/usr/bin") / pin.name, version, source, fault)


@pytest.mark.parametrize(
    ("seen", "condition", "source"),
    [
        (Observation(ETCD), Condition.MISSING, None),
        (Observation(ETCD, recorded(ETCD, "3.7.3")), Condition.OK, "cache"),
        (Observation(ETCD, recorded(ETCD, "3.7.3"), fault="etcd is truncated"), Condition.BROKEN, None),
        (Observation(ETCD, recorded(ETCD, "3.7.2")), Condition.BROKEN, None),
        (Observation(ETCD, stray=True), Condition.BROKEN, None),
        (Observation(ETCD, candidate=found(ETCD, "3.7.3")), Condition.OK, "path"),
        (Observation(ETCD, candidate=found(ETCD, "3.5.0", "older")), Condition.UNSUITABLE, None),
        (
            Observation(ETCD, recorded(ETCD, "3.7.3"), fault="gone", candidate=found(ETCD, "3.7.3")),
            Condition.OK,
            "path",
        ),
        (Observation(RUNC, recorded(RUNC, "1.1.5", "debian")), Condition.OK, "debian"),
        (Observation(RUNC, recorded(RUNC, "1.1.5", "debian"), fault="runc is gone"), Condition.MISSING, None),
        (Observation(RUNC, recorded(RUNC, "1.0.0", "debian")), Condition.MISSING, None),
        # Our language host runs on any release of the SDK; a foreign one has to match the engine.
        (Observation(HOST, recorded(HOST, "3.200.0", "cache")), Condition.OK, "cache"),
        (Observation(HOST, recorded(HOST, "3.200.0", "path")), Condition.MISSING, None),
    ],
)
def test_state_of_one_binary(seen: Observation, condition: Condition, source: str | None) -> None:
    state = judge(seen)
    assert state.condition is condition
    assert (state.binary.source if state.binary else None) == source


def test_a_foreign_language_host_must_match_the_engine() -> None:
    assert HOST.accepts(pins.load().find("pulumi").version)
    assert not HOST.accepts("3.200.0")


def test_a_reason_is_given_for_everything_but_absence() -> None:
    assert judge(Observation(ETCD, recorded(ETCD, "3.7.3"), fault="etcd is truncated")).detail == "etcd is truncated"
    assert "3.7.2" in judge(Observation(ETCD, recorded(ETCD, "3.7.2"))).detail
    assert "interrupted" in judge(Observation(ETCD, stray=True)).detail
    assert judge(Observation(ETCD, candidate=found(ETCD, "3.5.0", "too old"))).detail == "too old"


conditions = st.sampled_from(Condition)


@given(st.lists(conditions, min_size=len(pins.load().every()), max_size=len(pins.load().every())))
def test_a_plan_provides_exactly_what_is_not_usable(drawn: list[Condition]) -> None:
    every = pins.load().every()
    states = [State(pin, condition) for pin, condition in zip(every, drawn, strict=True)]
    plan = decide(states)
    planned = [*plan.package_pins, *(pin for item in plan.kits for pin in item.pins), *plan.launchers]
    wanted = [state.pin for state in states if state.condition is not Condition.OK]
    assert sorted(pin.name for pin in planned) == sorted(pin.name for pin in wanted)
    assert plan.count == len(wanted)
    assert {package.name for package in plan.packages} == {
        pin.origin.name for pin in wanted if isinstance(pin.origin, Package)
    }
    assert [item.kit.name for item in plan.kits] == list(
        dict.fromkeys(pin.origin.name for pin in wanted if isinstance(pin.origin, Kit))
    )


def test_what_is_known_already_is_not_recorded_again() -> None:
    known = State(ETCD, Condition.OK, recorded=True)
    new = State(RUNC, Condition.OK, recorded=False)
    assert decide([known, new]).adopt == (new,)


def test_space_is_that_of_the_kits_to_be_built() -> None:
    every = [State(pin, Condition.MISSING) for pin in pins.load().every()]
    whole = decide(every).kits
    assert space_needed_gb(whole) == pytest.approx(sum(kit.space_gb for kit in pins.load().kit))
    assert space_needed_gb(whole[-1:]) == whole[-1].kit.space_gb
    assert space_needed_gb(()) == 0
