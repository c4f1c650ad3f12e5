import json
import stat
import threading
from pathlib import Path

import pytest

from provisioner.errors import PermanentError, RefusedError, UsageError
from provisioner.sandbox import Sandbox
from provisioner.sandbox.state import Layout, Plan, layouts


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "..", "a" * 33, "a_b", "a\n"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        Sandbox(name)
    assert repr(name) in str(caught.value)


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too long"):
        Layout("x", tmp_path / ("d" * 100))


def test_nobody_else_may_look_in(tmp_path: Path) -> None:
    layout = Layout("x", tmp_path / "home")
    layout.make()
    for folder in (layout.root, layout.pki, layout.config, layout.records, layout.logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_bridges_name_fits_the_kernel_and_differs_by_home_and_name(tmp_path: Path) -> None:
    names = {Layout(name, tmp_path / home).bridge for name in ("a", "b") for home in ("1", "2")}
    assert len(names) == 4
    assert all(len(name) < 16 for name in names)


def test_the_plan_comes_back(tmp_path: Path) -> None:
    layout = Layout("x", tmp_path)
    assert layout.load() is None
    layout.make()
    plan = Plan("x", 3, node=True, hollow=2, ports={"etcd": 1}, created=1.5, additions=("training-operator",))
    layout.save(plan)
    assert layout.load() == plan
    assert [found.name for found in layouts(tmp_path)] == ["x"]


def test_a_plan_of_a_newer_version_is_read(tmp_path: Path) -> None:
    layout = Layout("x", tmp_path)
    layout.make()
    plan = Plan("x", 3, node=True, hollow=2, ports={"etcd": 1}, created=1.5)
    layout.save(plan)
    layout.plan.write_text(json.dumps(json.loads(layout.plan.read_text()) | {"news": [1]}))
    assert layout.load() == plan


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "x"}', '{"extra": 1}'])
def test_a_damaged_plan_is_named(tmp_path: Path, content: str) -> None:
    layout = Layout("x", tmp_path)
    layout.make()
    layout.plan.write_text(content)
    with pytest.raises(PermanentError, match="damaged"):
        layout.load()
    assert Sandbox("x", home=tmp_path).down()
    assert not layout.root.exists()


def test_no_sandbox_is_said(tmp_path: Path) -> None:
    for call in (Sandbox("x", home=tmp_path).status, Sandbox("x", home=tmp_path).existing_kubeconfig):
        with pytest.raises(PermanentError) as caught:
            call()
        assert caught.value.reason == "NoSuchSandbox"
        assert "up --name x" in caught.value.hint
    assert not Sandbox("x", home=tmp_path).down()


def test_a_sandbox_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    layout = Layout("x", tmp_path)
    with layout.lock(), pytest.raises(RefusedError, match="in use"), layout.lock(timeout=0.2):
        pass
    assert list(tmp_path.iterdir()) == []


def test_waiting_for_the_lock_ends_with_it(tmp_path: Path) -> None:
    layout = Layout("x", tmp_path)
    inside: list[str] = []

    def hold(name: str) -> None:
        with layout.lock(timeout=20):
            inside.append(name)
            assert len(inside) == 1
            inside.remove(name)

    threads = [threading.Thread(target=hold, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(tmp_path.iterdir()) == []
