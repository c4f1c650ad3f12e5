from __future__ import annotations

import threading

from provisioner.engine.cancellation import Cancellation


def test_listeners_are_told_once() -> None:
    told: list[str] = []
    cancellation = Cancellation()
    with cancellation.listen(lambda: told.append("a")), cancellation.listen(lambda: told.append("b")):
        cancellation.cancel()
        cancellation.cancel()
    assert told == ["a", "b"]


def test_who_comes_too_late_is_told_at_once() -> None:
    told: list[str] = []
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.listen(lambda: told.append("a")):
        assert told == ["a"]


def test_who_has_left_is_not_told() -> None:
    told: list[str] = []
    cancellation = Cancellation()
    with cancellation.listen(lambda: told.append("a")):
        pass
    cancellation.cancel()
    assert told == []


def test_many_threads_tell_a_listener_once() -> None:
    told: list[int] = []
    cancellation = Cancellation()
    barrier = threading.Barrier(8)

    def cancel() -> None:
        barrier.wait()
        cancellation.cancel()

    with cancellation.listen(lambda: told.append(1)):
        threads = [threading.Thread(target=cancel) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == [1]
