"""The points between two side effects of an operation, as values with names that are the same in every run."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

VICTIMS = ("server", "cli", "provider", "machine")
"""What is killed at a point; `machine` is all three at once."""

# Unique parts of names: UUIDs, the endings of temporary files, times in nanoseconds.
_UNIQUE = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=\.)(?:[0-9a-f]{9,16}|[a-z0-9_]{8}|\d+-\d+)(?=\.tmp)|\d{15,}"
)


@dataclass(frozen=True)
class Point:
    """The moment just before a change to the backend, or just before or after a write of the API server.

    Attributes:
        operation: `create`, `update` or `delete`.
        actor: Who makes the change: `server`, `cli` or `provider`.
        effect: What is done.
        nth: Counts the same effect of the same actor, from 1.
    """

    operation: str
    actor: str
    effect: str
    nth: int

    def __str__(self) -> str:
        return f"{self.operation}: {self.actor} {self.effect} #{self.nth}"


@dataclass(frozen=True)
class Case:
    """One point, and what is killed there.

    Attributes:
        point: When.
        victim: One of `VICTIMS`.
    """

    point: Point
    victim: str

    def __str__(self) -> str:
        return f"{self.point} kills {self.victim}"

    @property
    def kind(self) -> tuple[str, str, str]:
        """Who does what to what: the same for each operation, and however far it has come."""
        verb, _, target = self.point.effect.partition(" ")
        if verb.isupper():
            return self.point.actor, verb, target
        # Of a file, the folder below `.pulumi` says what it is for.
        takes_away = verb in ("unlink", "rmdir")
        return self.point.actor, "remove" if takes_away else "write", target.partition("/")[2].partition("/")[0]


def file_effect(verb: str, path: Path, root: Path, stack: str) -> str:
    """The name of a change to a file.

    Args:
        verb: What is done.
        path: To which file.
        root: Folder of the backend.
        stack: Name of the stack.

    Example:
        >>> file_effect("rename", Path("/b/.pulumi/stacks/graph-x1.json"), Path("/b"), "graph-x1")
        'rename .pulumi/stacks/STACK.json'
    """
    return f"{verb} {_UNIQUE.sub('*', str(path.relative_to(root)).replace(stack, 'STACK'))}"


class Trail:
    """Numbers the effects of one operation, and calls somebody at each.

    Args:
        operation: Its name.
        reached: Called at each point, in the thread that holds up the effect;
            False: the effect is not to happen.
    """

    def __init__(self, operation: str, reached: Callable[[Point], bool]) -> None:
        self._operation = operation
        self._reached = reached
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def effect(self, actor: str, effect: str) -> bool:
        """An effect is about to happen.

        Args:
            actor: Who causes it.
            effect: Its name.
        """
        with self._lock:
            self._counts[actor, effect] += 1
            point = Point(self._operation, actor, effect, self._counts[actor, effect])
        return self._reached(point)


_LINE = re.compile(r"(?P<operation>\w+): (?P<actor>\w+) (?P<effect>.+) #(?P<nth>\d+) \[(?P<victims>[a-z ]+)\]")


def write(points: Iterable[tuple[Point, Iterable[str]]]) -> str:
    """Points with what could be killed there, a line each."""
    return "".join(f"{point} [{' '.join(victims)}]\n" for point, victims in points)


def read(text: str) -> list[Case]:
    """The cases of what `write` wrote."""
    cases = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, line
        point = Point(match["operation"], match["actor"], match["effect"], int(match["nth"]))
        cases += [Case(point, victim) for victim in match["victims"].split()]
    return cases


def sample(cases: Iterable[Case]) -> list[Case]:
    """One case of each kind, with each operation and each victim as often as the others.

    Args:
        cases: All of them.
    """
    kinds: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.kind, []).append(case)
    taken: Counter[str] = Counter()
    chosen = []
    for found in kinds.values():
        # The middle of an operation first: its ends are alike.
        middle = sorted(found, key=lambda case: abs(found.index(case) - len(found) // 2))
        chosen.append(min(middle, key=lambda case: taken[case.victim] + taken[case.point.operation]))
        taken.update((chosen[-1].victim, chosen[-1].point.operation))
    return chosen


def lives(cases: Iterable[Case]) -> list[tuple[Case, ...]]:
    """Cases put together so that one service goes through one of each operation, while there are.

    The removal of history counts the operations before it, and a kill may leave
    one of them out: such a case has a life of its own.

    Args:
        cases: Which; each is in one life.
    """
    found: dict[str, list[Case]] = {}
    alone = []
    for case in cases:
        if case.kind[1:] == ("remove", "history"):
            alone.append((case,))
        else:
            found.setdefault(case.point.operation, []).append(case)
    together = [tuple(case for case in life if case is not None) for life in zip_longest(*found.values())]
    return [*together, *alone]
