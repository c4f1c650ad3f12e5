"""The sandbox's own containerd, as seen by whoever brings images."""

from __future__ import annotations

import subprocess
from pathlib import Path

from provisioner.errors import PermanentError
from provisioner.sandbox.controlplane import Locate
from provisioner.sandbox.state import Layout

_IMPORT_TIMEOUT = 600.0


class Runtime:
    """A client of the sandbox's containerd.

    Args:
        layout: The sandbox.
        locate: Name of a program -> its path.
    """

    def __init__(self, layout: Layout, locate: Locate) -> None:
        self._marks = layout.root / "loaded-images"
        self._command = [str(locate("ctr")), f"--address={layout.containerd_socket}", "--namespace=k8s.io"]

    def names(self) -> set[str]:
        """The full names of all images."""
        return set(self._run("images", "list", "--quiet").split())

    def load(self, path: Path, names: list[str]) -> None:
        """Import an archive.

        Args:
            path: The archive.
            names: The full names of the images in it.

        Raises:
            PermanentError: containerd refuses it.
        """
        self._run("images", "import", str(path))
        missing = sorted(set(names) - self.names())
        if missing:
            raise PermanentError(
                f"containerd imported {path}, but has no image {', '.join(missing)}", reason="ImportFailed"
            )

    def ensure_loaded(self, archives: dict[Path, str]) -> None:
        """Import archives whose content has not been imported yet.

        Args:
            archives: Path, which changes with the content -> full name of the image.
        """
        loaded = self._marks.read_text().splitlines() if self._marks.exists() else []
        present = self.names()
        for path, name in archives.items():
            if path.name not in loaded or name not in present:
                self.load(path, [name])
        self._marks.write_text("\n".join(path.name for path in archives))

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, check=False, timeout=_IMPORT_TIMEOUT
        )
        if done.returncode != 0:
            raise PermanentError(
                f"`ctr {' '.join(arguments)}` failed: {done.stderr.strip()[-500:]}", reason="ImportFailed"
            )
        return done.stdout
