"""The server as a process of its own, as it is deployed: started, awaited, and ended with SIGTERM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from provisioner.demo.report import DemoError
from provisioner.settings import ENV_PREFIX, Settings

_POLL_SECONDS = 0.1


class ServerProcess:
    """`provisioner serve` on free ports.

    Args:
        settings: Backend, passphrase and cluster that it is to use.
        folder: For its log and its ready file.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._ready_file = folder / "server.json"
        self.log = folder / "server.log"
        self.address = ""
        self.metrics_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id, once started."""
        assert self._process is not None  # noqa: S101 - start is called first
        return self._process.pid

    def start(self, seconds: float = 180.0) -> None:
        """Start it, and wait until its health is SERVING.

        Args:
            seconds: How long at most.

        Raises:
            DemoError: It ended, or is not serving in time.
        """
        self._ready_file.unlink(missing_ok=True)  # a killed one could not take it away
        command = [sys.executable, "-m", "provisioner", "serve", "--host", "127.0.0.1", "--port", "0"]
        command += ["--metrics-port", "0", "--ready-file", str(self._ready_file)]
        with self.log.open("ab") as log:
            self._process = self._launch(command, os.environ | environment(self._settings), log)
        deadline = time.monotonic() + seconds
        while not self._ready_file.exists():
            self._wait(deadline, "open its ports")
        addresses = json.loads(self._ready_file.read_text())
        self.address = f"{addresses['host']}:{addresses['port']}"
        self.metrics_port = addresses["metrics_port"]
        with grpc.insecure_channel(self.address) as channel:
            while HealthStub(channel).Check(HealthCheckRequest(), wait_for_ready=True, timeout=seconds).status != (
                HealthCheckResponse.SERVING
            ):
                self._wait(deadline, "see the cluster")

    def _launch(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def stop(self, seconds: float = 120.0) -> int:
        """End it with SIGTERM, and wait.

        Args:
            seconds: How long at most; then it is killed.

        Returns:
            Its exit code; 0 when nothing was cut off.
        """
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it with SIGKILL, as a crash would."""
        assert self._process is not None  # noqa: S101 - start is called first
        self._process.kill()
        return self._process.wait()

    def last_words(self, lines: int = 5) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _wait(self, deadline: float, what: str) -> None:
        assert self._process is not None  # noqa: S101 - start is called first
        code = self._process.poll()
        if code is not None:
            raise DemoError(f"the server ended with code {code}: {self.last_words()}", hint=f"see {self.log}")
        if time.monotonic() > deadline:
            self.kill()
            raise DemoError(f"the server did not {what} in time: {self.last_words()}", hint=f"see {self.log}")
        time.sleep(_POLL_SECONDS)


def environment(settings: Settings) -> dict[str, str]:
    """The variables that give another process these settings.

    Args:
        settings: Backend, passphrase and cluster; a secret goes by its file,
            never in clear.
    """
    values = {
        "BACKEND": settings.backend,
        "PASSPHRASE_FILE": str(settings.passphrase_file),
        "NAMESPACE": settings.namespace,
        "WORKERS": str(settings.workers),
        "KUBECONFIG": str(settings.kubeconfig) if settings.kubeconfig else "",
        "CONTEXT": settings.context or "",
        "LOG_FORMAT": "json",
    }
    return {f"{ENV_PREFIX}{name}": value for name, value in values.items() if value}
