"""The Pulumi CLI: the only place where one of its processes is started.

What is the same for all operations is found out once (the binary, the home
with its plugins, the passphrase), so that starting a server costs no process,
nor does any operation ask for what is known.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from provisioner import toolchain
from provisioner.engine import metrics
from provisioner.engine.environment import (
    PROJECT,
    Access,
    file_backend,
    kubeconfig_variable,
    process_environment,
)
from provisioner.engine.process import Finished, Limits, run
from provisioner.engine.store import folder_lost
from provisioner.errors import PermanentError
from provisioner.passphrase import ensure_passphrase_file
from provisioner.settings import Settings

OnProcess = Callable[[Sequence[str]], None]


@dataclass(frozen=True)
class _Installation:
    """What is found out once.

    Attributes:
        pulumi: The CLI.
        home: PULUMI_HOME.
    """

    pulumi: Path
    home: Path


def verb_of(arguments: Sequence[str]) -> str:
    """The words by which a process is counted and traced.

    Args:
        arguments: After `pulumi`.

    Example:
        >>> verb_of(["stack", "init", "graph"]), verb_of(["up", "--yes"])
        ('stack init', 'up')
    """
    return " ".join(arguments[: 2 if arguments[0] == "stack" else 1])


class Cli:
    """Starts CLI processes; safe for several threads.

    Args:
        settings: Backend, passphrase and cluster.
        on_process: Told the command of each process just before it starts.
    """

    def __init__(self, settings: Settings, on_process: OnProcess | None = None) -> None:
        self._settings = settings
        self._on_process = on_process
        self._lock = threading.Lock()
        self._found: _Installation | None = None
        self._made: set[Path] = set()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A working folder for the processes of one operation: a Pulumi project, and what they write beside it."""
        with tempfile.TemporaryDirectory(prefix=f"{PROJECT}-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            project = yaml.safe_dump({"name": PROJECT, "runtime": "python"})
            (folder / "Pulumi.yaml").write_text(project, encoding="utf-8")
            yield folder

    def run(self, arguments: Sequence[str], *, folder: Path, limits: Limits, backend: str | None = None) -> Finished:
        """Run one CLI process to its end.

        Args:
            arguments: After `pulumi`; never a secret.
            folder: From `folder`.
            limits: When it is stopped.
            backend: URL of another backend than the settings'.

        Returns:
            How it ended; a failure is not raised.

        Raises:
            PermanentError: There is no CLI, or the state folder cannot be made.
            TransientError: The machine has no room for another process, or the
                state folder is not there any more.
        """
        installation = self._installation()
        settings = self._settings
        access = Access(
            home=installation.home,
            backend=backend or settings.backend,
            passphrase=settings.passphrase.get_secret_value() if settings.passphrase is not None else None,
            passphrase_file=settings.passphrase_file.absolute(),
            kubeconfig=kubeconfig_variable(settings, os.environ, folder),
        )
        self._ensure_backend_folder(access.backend)
        command = [str(installation.pulumi), "--non-interactive", "--color", "never", *arguments]
        if self._on_process is not None:
            self._on_process(tuple(command))
        metrics.STARTED.labels(verb_of(arguments)).inc()
        with metrics.PROCESSES.track_inprogress():
            return run(command, cwd=folder, environment=process_environment(access, os.environ), limits=limits)

    def _installation(self) -> _Installation:
        with self._lock:
            if self._found is None:
                if self._settings.passphrase is None:
                    ensure_passphrase_file(self._settings.passphrase_file)
                home = toolchain.pulumi_home()
                home.mkdir(parents=True, exist_ok=True)
                self._found = _Installation(toolchain.locate("pulumi").path, home)
            return self._found

    def _ensure_backend_folder(self, backend: str) -> None:
        folder = file_backend(backend)
        if folder is None:
            return
        if not folder.is_dir():
            if folder in self._made:
                raise folder_lost(str(folder))
            try:
                folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            except OSError as error:
                raise PermanentError(
                    f"state folder {folder} cannot be made: {error.strerror}",
                    reason="StatePermissionDenied",
                    hint="name a folder that can be written in PROVISIONER_BACKEND",
                ) from error
        self._made.add(folder)
