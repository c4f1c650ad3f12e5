"""The configuration file, read again when it changes; a broken one never replaces a good one.

Changes are found by looking at the files, not by a notification of the kernel:
a ConfigMap is mounted through symbolic links that are swapped, and network
file systems notify nobody. A look is one `stat` per file.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from provisioner.certificates import Stamp, stamp_of
from provisioner.errors import ProvisionerError
from provisioner.registry.config import RegistryConfig
from provisioner.registry.documents import files_of
from provisioner.registry.metrics import Metrics
from provisioner.registry.parse import load

log = structlog.get_logger(__name__)


class ConfigSource:
    """Holds the last good configuration.

    Args:
        path: File or folder; None when agents are only discovered.
        discovering: Agents may be discovered too, so the file may name none.

    Raises:
        ProvisionerError: The first reading failed.
    """

    def __init__(self, path: Path | None, *, discovering: bool = False) -> None:
        self._path = path
        self._discovering = discovering
        self._stamp = self._look()
        self.error = ""
        """Why the file as it is now is not in use, or ""."""
        self.config = self._read()
        """The configuration in use."""
        for note in self.config.notes:
            log.warning("configuration", note=str(note), file=self.config.source)

    def _look(self) -> Stamp:
        if self._path is None:
            return ()
        try:
            return stamp_of((self._path, *files_of(self._path)))
        except OSError:  # the folder went away between two steps
            return ()

    def _read(self) -> RegistryConfig:
        if self._path is None:
            return RegistryConfig(source="discovery")
        return load(self._path, may_be_empty=self._discovering)

    def reload(self, metrics: Metrics, *, force: bool = False) -> bool:
        """Read the files again when they have changed.

        Args:
            metrics: Where the outcome is counted.
            force: Read them even if they look unchanged.

        Returns:
            Whether there is a new configuration in use.
        """
        # The look comes before the reading: what is written in between is seen the next time.
        stamp = self._look()
        if stamp == self._stamp and not force:
            return False
        self._stamp = stamp
        try:
            fresh = self._read()
        except ProvisionerError as error:
            self.error = str(error)
        else:
            return self._use(fresh, metrics)
        metrics.reloads.labels("failed").inc()
        metrics.config_valid.set(0)
        log.error("configuration is broken, the old one stays in use", problem=self.error, file=str(self._path))
        return False

    def _use(self, fresh: RegistryConfig, metrics: Metrics) -> bool:
        metrics.reloads.labels("ok").inc()
        metrics.config_valid.set(1)
        recovered, self.error = bool(self.error), ""
        changed = fresh != self.config
        self.config = fresh
        if changed or recovered:
            log.info("configuration read again", file=fresh.source, agents=len(fresh.deployments))
            for note in fresh.notes:
                log.warning("configuration", note=str(note), file=fresh.source)
        return changed
