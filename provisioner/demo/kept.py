"""What a kept demonstration left running, remembered so that it can be ended, and how to look at it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.cluster import ClusterClient
from provisioner.control.reaper import remove_all
from provisioner.control.request import ServiceRequest
from provisioner.demo import training
from provisioner.demo.objects import Objects
from provisioner.demo.report import DemoError, DemoReport, Recorder, Show
from provisioner.engine import PROJECT
from provisioner.errors import PermanentError
from provisioner.identity import LABEL_STACK
from provisioner.settings import Settings, state_home


@dataclass(frozen=True)
class Kept:
    """A demonstration that still runs.

    Attributes:
        request: Its service.
        job: Name of its training.
        server_pid: Process id of its server.
        server_log: The server's log.
        kubeconfig: Of its cluster; "" is the default.
        context: In the kubeconfig; "" is the current one.
    """

    request: ServiceRequest
    job: str
    server_pid: int
    server_log: str
    kubeconfig: str
    context: str

    def save(self) -> None:
        """Remember it."""
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {**vars(self), "request": self.request.document()}
        path.write_text(json.dumps(document, indent=2) + "\n")

    def commands(self, settings: Settings) -> tuple[str, ...]:
        """Shell lines to look around with, and one to end it.

        Args:
            settings: Those that it runs with.
        """
        identity = self.request.identity
        where = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        where += [f"--context={self.context}"] if self.context else []
        kubectl = shlex.join(["kubectl", *where, f"--namespace={identity.namespace}"])
        passphrase = shlex.quote(str(settings.passphrase_file))
        pulumi = f"PULUMI_BACKEND_URL={shlex.quote(settings.backend)} PULUMI_CONFIG_PASSPHRASE_FILE={passphrase} pulumi"
        return (
            f"{kubectl} get statefulset,service,pod -l {LABEL_STACK}={identity.stack}",
            f"{kubectl} logs --prefix -l {training.LABEL}={self.job}",
            f"{pulumi} stack export --stack organization/{PROJECT}/{identity.stack}",
            f"tail -f {shlex.quote(self.server_log)}",
            "provisioner demo --end",
        )


def _path() -> Path:
    return state_home() / "demo.json"


def load() -> Kept | None:
    """The demonstration that was kept, if there is one.

    Raises:
        PermanentError: What was remembered of it cannot be read.
    """
    try:
        document: dict[str, Any] = json.loads(_path().read_text())
        return Kept(**{**document, "request": ServiceRequest.from_document(document["request"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise PermanentError(
            f"{_path()} is not what a kept demonstration writes: {error}", hint="delete that file"
        ) from error


def end(settings: Settings, show: Show) -> DemoReport:
    """End the demonstration that was kept: the server, the training, the service.

    Args:
        settings: Backend and passphrase.
        show: Told of each step.

    Raises:
        PermanentError: None was kept.
        DemoError: Something of it is still there.
    """
    kept = load()
    if kept is None:
        raise PermanentError(
            "no demonstration was kept", reason="NothingKept", hint="keep one: provisioner demo --keep"
        )
    place = {"kubeconfig": Path(kept.kubeconfig) if kept.kubeconfig else None, "context": kept.context or None}
    settings = settings.model_copy(update=place)
    record = Recorder(show)
    with record.step("end the server") as step:
        step.result = _end_server(kept.server_pid)
    with record.step("remove training and store") as step:
        training.remove(kept.job, Objects(ClusterClient(settings), kept.request.identity.namespace))
        if not remove_all([kept.request], settings, step.show.say):
            raise DemoError(f"stack {kept.request.stack} is still there", hint="run `provisioner demo --end` again")
        step.result = "nothing is left"
    _path().unlink()
    return DemoReport(tuple(record.steps))


def _end_server(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline")
    with contextlib.suppress(OSError):
        # The number may belong to another process by now.
        if b"serve" in command.read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGTERM)
            return f"process {pid} was told to end"
    return "it had ended already"
