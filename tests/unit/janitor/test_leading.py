"""Who sweeps when the election goes wrong: nobody who does not renew, and somebody again afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from provisioner.janitor.janitor import Janitor
from provisioner.janitor.leader import Elector
from provisioner.janitor.settings import JanitorSettings
from provisioner.settings import Settings

PATIENCE = 30.0


@pytest.fixture
def janitor(tmp_path: Path) -> Iterator[Janitor]:
    """One whose API server nobody will ask."""
    document = {
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"token": "none"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    settings = Settings(backend=f"file://{tmp_path / 'backend'}", kubeconfig=kubeconfig)
    made = Janitor(settings, JanitorSettings())
    yield made
    made.close()


@pytest.fixture
def begun() -> threading.Event:
    """Set by each sweep."""
    return threading.Event()


@pytest.fixture
def lead(janitor: Janitor, begun: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Let it stand for election with these answers, until all of them were given; who leads sweeps before the next."""
    monkeypatch.setattr(Elector, "retry_seconds", 0.001)
    monkeypatch.setattr(Elector, "release", lambda self: None)
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def run(*answers: bool | Exception) -> None:
        left = list(answers)
        leading = False

        def step(self: Elector) -> bool:
            nonlocal leading
            if leading:
                assert begun.wait(PATIENCE)
                begun.clear()
            leading = bool(left) and left[0] is True
            if not left:
                stop.set()
                return False
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(Elector, "step", step)
        threads.append(threading.Thread(target=janitor.run_forever, args=(3600.0, stop)))
        threads[0].start()
        threads[0].join(PATIENCE)
        assert not threads[0].is_alive()

    yield run
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)


@pytest.fixture
def swept(janitor: Janitor, begun: threading.Event, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cancellation of each sweep."""
    made: list[Any] = []

    def sweep(**given: Any) -> None:
        made.append(given["cancellation"])
        begun.set()

    monkeypatch.setattr(janitor, "sweep", sweep)
    return made


def test_a_fault_of_the_election_is_not_the_end_of_it(swept: list[Any], lead: Any) -> None:
    lead(RuntimeError("a fault"), True, False)
    assert len(swept) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_cannot_renew_by_a_fault_does_not_sweep_any_more(swept: list[Any], lead: Any) -> None:
    lead(True, RuntimeError("a fault"))
    assert [cancellation.cancelled for cancellation in swept] == [True]
    assert REGISTRY.get_sample_value("provisioner_gc_leader") == 0


def test_a_sweep_that_fails_by_a_fault_is_counted_and_not_the_last(
    lead: Any, janitor: Janitor, begun: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        begun.set()
        raise RuntimeError("a fault")

    def failed() -> float:
        return REGISTRY.get_sample_value("provisioner_gc_sweeps_total", {"result": "failed"}) or 0

    monkeypatch.setattr(janitor.gatherer, "everything", broken)
    before = failed()
    with pytest.raises(RuntimeError):
        janitor.sweep(dry_run=True)
    assert failed() == before
    begun.clear()
    lead(True, False, True, False)
    assert failed() == before + 2
