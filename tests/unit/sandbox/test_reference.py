import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import UsageError
from provisioner.sandbox.images.reference import full_name


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("team/tool", "docker.io/team/tool:latest"),
        ("localhost/python:sandbox", "localhost/python:sandbox"),
        ("127.0.0.1:5999/missing:1", "127.0.0.1:5999/missing:1"),
        ("registry.example/a/b_c/d-e", "registry.example/a/b_c/d-e:latest"),
    ],
)
def test_short_names_become_full(written: str, full: str) -> None:
    assert full_name(written) == full


@pytest.mark.parametrize(
    "wrong", ["", "Busybox", "a:b:c", "a@sha256:00", "a//b", "-a", "a b", "a:", "localhost/", "../x"]
)
def test_what_is_no_name_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError) as caught:
        full_name(wrong)
    assert repr(wrong) in str(caught.value)


@given(st.text(max_size=40))
def test_a_full_name_stays_as_it_is(text: str) -> None:
    try:
        full = full_name(text)
    except UsageError:
        return
    assert full_name(full) == full
