"""What every real test shares: one local cluster for the whole run, and settings of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provisioner.settings import Settings

if TYPE_CHECKING:
    from provisioner.sandbox import Sandbox

# Seconds within which the cluster must show what a test waits for.
PATIENCE = 90.0
# Names a cluster that the run uses and leaves running, which saves a minute a run while one works on tests.
KEPT_SANDBOX = "PROVISIONER_TESTS_SANDBOX"


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A real cluster: control plane, one node with kubelet and containerd, DNS."""
    from provisioner.sandbox import Sandbox

    kept = os.environ.get(KEPT_SANDBOX)
    cluster = Sandbox(kept or "tests")
    cluster.up()
    yield cluster
    if kept is None:
        cluster.down()


@pytest.fixture(scope="session")
def settings_in(sandbox: Sandbox) -> Callable[[Path], Settings]:
    """Settings for the cluster, with a state backend and a passphrase in a folder."""

    def settings_in(folder: Path) -> Settings:
        return Settings(
            backend=f"file://{folder / 'backend'}",
            passphrase_file=folder / "passphrase",
            kubeconfig=sandbox.kubeconfig,
            context=sandbox.context,
            workers=2,
        )

    return settings_in


@pytest.fixture
def settings(settings_in: Callable[[Path], Settings], tmp_path: Path) -> Settings:
    """Settings with a state backend and a passphrase of their own."""
    return settings_in(tmp_path)


@pytest.fixture
def environment(settings: Settings) -> Callable[[], dict[str, str]]:
    """The environment variables that give a process of its own these settings."""

    def variables() -> dict[str, str]:
        from provisioner.demo.server import environment

        return environment(settings)

    return variables
