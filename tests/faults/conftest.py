"""Whatever is killed, refused or slow: how the faults are chosen, where they happen, and what the report says.

Without `--whole`, a fixed sample runs: see `points.sample`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_world import World

from provisioner.settings import Settings

# What takes minutes by default takes seconds here.
QUICK = {"PROVISIONER_OPERATION_TIMEOUT": "45", "PROVISIONER_CANCEL_GRACE": "3", "PROVISIONER_DRAIN_TIMEOUT": "10"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "whole: runs with --whole alone")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="every fault, not only the sample")
    parser.addoption("--record", action="store_true", help="write tests/faults/points.txt anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("whole", False):
        return
    left_out = [item for item in items if item.get_closest_marker("whole")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    suffered: dict[str, bool] = {}
    polls = [0]
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            told = getattr(report, "user_properties", ())
            survived = {value for name, value in told if name == "survived"}
            polls += [value for name, value in told if name == "polls"]
            for fault in (value for name, value in told if name == "fault"):
                lived = fault in survived or outcome == "passed"
                suffered[fault] = suffered.get(fault, True) and lived
    if suffered:
        points: dict[str, bool] = {}
        for fault, lived in suffered.items():
            point = fault.partition(" kills ")[0]
            points[point] = points.get(point, True) and lived
        terminalreporter.section("faults")
        terminalreporter.line(
            f"{len(points)} points, {sum(points.values())} survived; {len(suffered)} cases, {sum(suffered.values())} "
            f"survived; at most {max(polls)} polls until all was as asked for"
        )


@pytest.fixture(scope="session")
def world(settings_in: Callable[[Path], Settings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Servers that may be killed, on one backend, behind an API server that may fail."""
    folder = tmp_path_factory.mktemp("faults")
    settings = settings_in(folder)
    made = World(settings, folder, QUICK)
    # The first use of a backend makes folders that no later one makes.
    first = made.service()
    first.create()
    first.converge()
    first.vanish()
    yield made
    made.close()
