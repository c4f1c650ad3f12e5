"""Variables marked secret: what is accepted, and that their values get out nowhere."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from provisioner.errors import PermanentError, SpecError
from provisioner.sealing import Sealer
from provisioner.spec import DataServiceSpec, parse_spec

PLAIN = {"image": "localhost/store:1", "ports": [{"name": "grpc", "port": 9000}]}
SEALER = Sealer(lambda: SecretStr("a passphrase"))
OTHER = Sealer(lambda: SecretStr("another passphrase"))


def spec_with(value: object, **env: object) -> DataServiceSpec:
    return parse_spec({**PLAIN, "env": {"TOKEN": {"secret": value}, **env}})


def test_a_secret_in_clear_is_shown_and_written_nowhere():
    spec = spec_with("hunter2")
    assert "hunter2" not in repr(spec) + str(spec)
    for write in (spec.document, spec.canonical_json, spec.digest, spec.model_dump_json):
        with pytest.raises(ValueError, match="must be sealed") as caught:
            write()
        assert "hunter2" not in str(caught.value)


def test_a_sealed_specification_survives_being_written_and_read():
    sealed = SEALER.sealed(spec_with("hunter2", PLAIN="x"), "graph")
    text = sealed.canonical_json()
    assert "hunter2" not in text
    again = parse_spec(json.loads(text))
    assert again == sealed
    assert again.digest() == sealed.digest()
    assert SEALER.opened(again, "graph") == {"TOKEN": "hunter2"}


def test_an_equal_secret_is_equal_and_another_is_not():
    def digest(value: str, stack: str = "graph", sealer: Sealer = SEALER) -> str:
        return sealer.sealed(spec_with(value), stack).digest()

    assert digest("hunter2") == digest("hunter2")
    # Nobody without the passphrase can try values until the hash fits.
    assert len({digest("hunter2"), digest("hunter3"), digest("hunter2", "other"), digest("hunter2", sealer=OTHER)}) == 4


def test_what_is_sealed_already_and_what_has_no_secret_stays():
    sealed = SEALER.sealed(spec_with("hunter2"), "graph")
    assert SEALER.sealed(sealed, "graph") == sealed

    def never() -> SecretStr:
        raise AssertionError("no secret, no passphrase")

    assert Sealer(never).sealed(parse_spec(PLAIN), "graph") == parse_spec(PLAIN)
    assert Sealer(never).opened(parse_spec(PLAIN), "graph") == {}


SEALED = SEALER.seal("graph", "TOKEN", "hunter2")


@pytest.mark.parametrize(
    ("sealer", "stack", "variable", "text"),
    [
        (OTHER, "graph", "TOKEN", SEALED),
        (SEALER, "other", "TOKEN", SEALED),
        (SEALER, "graph", "OTHER", SEALED),
        (SEALER, "graph", "TOKEN", SEALED[:-2] + ("AA" if SEALED[-2:] != "AA" else "BB")),
        (SEALER, "graph", "TOKEN", "v1:AAAA"),
        (SEALER, "graph", "TOKEN", f"v2:{SEALED[3:]}"),
        (SEALER, "graph", "TOKEN", "v1:"),
    ],
)
def test_a_sealed_text_opens_only_where_it_belongs(sealer: Sealer, stack: str, variable: str, text: str):
    with pytest.raises(PermanentError) as caught:
        sealer.open(stack, variable, text)
    assert caught.value.reason == "SecretUnreadable"
    assert variable in caught.value.message


@given(st.text(max_size=100), st.text(max_size=20), st.text(max_size=20))
def test_sealing_round_trip(value: str, stack: str, variable: str):
    assert SEALER.open(stack, variable, SEALER.seal(stack, variable, value)) == value


def test_a_sealed_text_does_not_tell_a_short_password_from_a_long_one():
    assert len({len(SEALER.seal("graph", "TOKEN", "x" * length)) for length in range(32)}) == 1


@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        ({"secret": 3}, "env.TOKEN.secret", "valid string"),
        ({"secret": "hunter2\0"}, "env.TOKEN.secret", "NUL"),
        ({"secret": "hunter2", "sealed": "v1:aa"}, "env.TOKEN", "exactly one"),
        ({"sealed": "hunter2"}, "env.TOKEN.sealed", "match pattern"),
        ({"secrt": "hunter2"}, "env.TOKEN.secrt", "did you mean secret?"),
        ({"secret": "hunter2", "key": "x"}, "env.TOKEN.key", "unknown field"),
    ],
)
def test_wrong_secrets_name_the_field_and_show_no_value(value: object, path: str, said: str):
    with pytest.raises(SpecError) as caught:
        parse_spec({**PLAIN, "env": {"TOKEN": value}})
    found = {problem.path: str(problem) for problem in caught.value.problems}
    assert said in found[path]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["A B", "..", "..x", ".", "A/B"])
def test_a_secret_needs_a_name_that_a_secret_can_have(name: str):
    with pytest.raises(SpecError) as caught:
        parse_spec({**PLAIN, "env": {name: {"secret": "hunter2"}}})
    assert f"env.{name}" in [problem.path for problem in caught.value.problems]
    assert parse_spec({**PLAIN, "env": {name: "not secret"}}).env == {name: "not secret"}
