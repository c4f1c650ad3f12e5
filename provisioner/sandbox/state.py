"""What a sandbox is and where it keeps it: one folder, one plan, one lock.

The plan holds every choice that must stay the same from one `up` to the next
(ports, addresses, how many nodes). Whatever else is on disk can be derived
from it again, so a lost or damaged file is repaired by the next `up`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from ipaddress import IPv4Network
from pathlib import Path

from provisioner import settings
from provisioner.errors import PermanentError, RefusedError, UsageError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_SOCKET_PATH_LIMIT = 107  # unix(7): sun_path has 108 bytes, the last one is 0


def sandboxes_home() -> Path:
    """The folder of all sandboxes of this user."""
    return settings.state_home() / "sandbox"


@dataclass(frozen=True)
class Plan:
    """The choices of one sandbox.

    Attributes:
        name: Its name.
        network: Which of the address blocks it has; see `pod_network`.
        node: Whether it has a real node.
        hollow: How many hollow nodes it has.
        ports: Purpose -> TCP port, on loopback unless said otherwise.
        created: Seconds since the epoch.
        additions: What runs beside the cluster, by name.
    """

    name: str
    network: int
    node: bool
    hollow: int
    ports: dict[str, int] = field(default_factory=dict)
    created: float = 0.0
    additions: tuple[str, ...] = ()

    @property
    def pod_network(self) -> IPv4Network:
        """The addresses of its pods; the first is the bridge, and so the node."""
        return IPv4Network(f"10.244.{self.network * 4}.0/22")

    @property
    def service_network(self) -> IPv4Network:
        """The addresses of its Services; the first is the API server."""
        return IPv4Network(f"10.245.{self.network * 4}.0/22")

    @property
    def node_address(self) -> str:
        """The bridge's address, which the node, DNS and the pods' gateway share."""
        return str(self.pod_network[1])

    @property
    def api_address(self) -> str:
        """The address of the Service `kubernetes`."""
        return str(self.service_network[1])


@dataclass(frozen=True)
class Layout:
    """Where a sandbox keeps what.

    Args:
        name: The sandbox; at most 32 of a-z, 0-9 and `-`.
        home: The folder of all sandboxes.

    Raises:
        UsageError: The name is not accepted, or the folder's path is too long.
    """

    name: str
    home: Path

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"sandbox name {self.name!r} is not accepted",
                reason="InvalidName",
                hint="use at most 32 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
            )
        if len(os.fsencode(self.containerd_socket)) > _SOCKET_PATH_LIMIT:
            raise UsageError(
                f"the path {self.root} is too long for a socket below it",
                reason="PathTooLong",
                hint="choose a shorter name, or set XDG_STATE_HOME to a shorter path",
            )

    @property
    def root(self) -> Path:
        """The sandbox's folder."""
        return self.home / self.name

    @property
    def plan(self) -> Path:
        """The file with its `Plan`."""
        return self.root / "sandbox.json"

    @property
    def kubeconfig(self) -> Path:
        """The file that lets a client in as administrator."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """The folder of certificates and keys."""
        return self.root / "pki"

    @property
    def config(self) -> Path:
        """The folder of the components' configuration files."""
        return self.root / "config"

    @property
    def records(self) -> Path:
        """The folder of the process records."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """The folder of the components' logs."""
        return self.root / "log"

    @property
    def bridge(self) -> str:
        """The name of the bridge: unique on the machine, at most 15 characters."""
        return "dsb-" + hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def containerd_socket(self) -> Path:
        """The address of the sandbox's own containerd."""
        return self.root / "run-containerd" / "containerd.sock"

    def make(self) -> None:
        """Make the folders; only their owner may look into them."""
        for folder in (self.home, self.root, self.pki, self.config, self.records, self.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.home.stat().st_uid != os.getuid():
            raise RefusedError(f"{self.home} belongs to another user", reason="ForeignFolder")
        self.root.chmod(0o700)

    def exists(self) -> bool:
        """Whether there is anything of a sandbox by this name."""
        return self.root.exists()

    def load(self) -> Plan | None:
        """The plan, or None when there is none yet.

        Raises:
            PermanentError: The file is damaged.
        """
        try:
            document = json.loads(self.plan.read_text())
            known = {field.name for field in fields(Plan)}
            # What a newer version wrote for itself is none of our business: another sandbox's plan is read as well.
            values = {name: value for name, value in dict(document).items() if name in known}
            return Plan(**{**values, "additions": tuple(values.get("additions", ()))})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, AttributeError) as error:
            raise PermanentError(
                f"{self.plan} is damaged: {error}",
                reason="DamagedState",
                hint=f"run `provisioner sandbox down --name {self.name}` and start again",
            ) from error

    def save(self, plan: Plan) -> None:
        """Write the plan, whole or not at all."""
        fresh = self.plan.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(plan), indent=2))
        fresh.replace(self.plan)

    @contextmanager
    def lock(self, timeout: float = 600.0) -> Iterator[None]:
        """Hold the sandbox for oneself, across processes.

        Args:
            timeout: Seconds to wait for another holder.

        Raises:
            RefusedError: Another process holds it for longer.
        """
        path = self.home / f".{self.name}.lock"
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        deadline = time.monotonic() + timeout
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                if time.monotonic() > deadline:
                    raise RefusedError(
                        f"sandbox {self.name!r} is in use by another process",
                        reason="Locked",
                        hint="wait until the other `provisioner sandbox` command has ended",
                    ) from None
                time.sleep(0.1)
                continue
            if _is_same(path, handle):
                break
            os.close(handle)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)


def _is_same(path: Path, handle: int) -> bool:
    """Whether a path still leads to an open file: a former holder removes the file that a later one has locked."""
    try:
        return path.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def layouts(home: Path) -> list[Layout]:
    """All sandboxes of a home, by name."""
    if not home.exists():
        return []
    return [Layout(path.name, home) for path in sorted(home.iterdir()) if path.is_dir() and _NAME.fullmatch(path.name)]
