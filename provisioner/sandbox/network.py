"""Addresses and ports of a sandbox, and its bridge.

Each sandbox has a block of pod addresses and one of Service addresses that no
interface, route or other sandbox of the machine uses. The bridge carries the
node's address and, as a second one, the address of the Service `kubernetes`:
a pod that calls the API server reaches the machine by its default route, and
a relay there takes the call. So neither packet forwarding nor a single
firewall rule of the machine is changed. For the same reason pods have no way
out of the machine, and a Service with a ClusterIP (which would need
kube-proxy) is not served; headless Services are, by DNS.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network

from provisioner.errors import PermanentError, TransientError
from provisioner.sandbox.state import Plan

BLOCKS = 64
# Below the range that the kernel takes for outgoing connections (32768 and up), so that a port stays free between two
# runs of its owner.
PORT_RANGE = range(20000, 32000)


@contextmanager
def allocation(timeout: float = 60.0) -> Iterator[None]:
    """Choose addresses and ports while nobody else on this network does.

    An abstract socket's name is unique per network namespace, which is just
    the scope of what is chosen, and it goes when its holder dies.

    Args:
        timeout: Seconds to wait for another holder.

    Raises:
        TransientError: Another process holds it for longer.
    """
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as mutex:
        while True:
            try:
                mutex.bind("\0data-service-provisioner/sandbox-network")
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise TransientError(
                        "another process has been choosing addresses for too long", reason="Locked"
                    ) from error
                time.sleep(0.05)
        yield


def networks_in_use() -> list[IPv4Network]:
    """Every IPv4 network that an address or a route of this machine names; needs `ip`."""
    found = []
    for interface in json.loads(_ip("-json", "-4", "address", "show")):
        found += [IPv4Network(f"{item['local']}/{item['prefixlen']}", strict=False) for item in interface["addr_info"]]
    for route in json.loads(_ip("-json", "-4", "route", "show", "table", "all") or "[]"):
        if route["dst"] != "default":
            found.append(IPv4Network(route["dst"], strict=False))
    return found


def choose_block(used: Iterable[IPv4Network], taken: Iterable[int]) -> int:
    """The first address block that collides with nothing.

    Args:
        used: Networks of the machine.
        taken: Blocks of other sandboxes.

    Raises:
        PermanentError: All are in use.
    """
    networks, others = list(used), set(taken)
    for block in range(BLOCKS):
        plan = Plan(name="", network=block, node=False, hollow=0)
        mine = (plan.pod_network, plan.service_network)
        if block not in others and not any(one.overlaps(other) for one in mine for other in networks):
            return block
    raise PermanentError(
        f"all {BLOCKS} address blocks from {Plan('', 0, False, 0).pod_network} on are in use on this machine",
        reason="NoAddresses",
        hint="end a sandbox that is not needed: `provisioner sandbox list`",
    )


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a server could listen on this TCP port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def choose_ports(purposes: Iterable[str], taken: Iterable[int]) -> dict[str, int]:
    """A free port on loopback for each purpose.

    Args:
        purposes: Names of the ports wanted.
        taken: Ports of other sandboxes, which may not listen just now.

    Raises:
        PermanentError: There are not enough free ports.
    """
    others = set(taken)
    candidates = iter(random.sample(PORT_RANGE, len(PORT_RANGE)))
    chosen = {}
    for purpose in purposes:
        port = next((port for port in candidates if port not in others and is_free(port)), None)
        if port is None:
            raise PermanentError(f"no free TCP port in {PORT_RANGE.start}-{PORT_RANGE.stop - 1}", reason="NoPorts")
        chosen[purpose] = port
    return chosen


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PermanentError(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}", reason="NetworkFailed")
    return done.stdout


def has_bridge(name: str) -> bool:
    """Whether an interface of this name exists."""
    return any(name == known for _, known in socket.if_nameindex())


def ensure_bridge(name: str, plan: Plan) -> None:
    """Make the bridge with both its addresses, and bring it up. Idempotent."""
    if not has_bridge(name):
        _ip("link", "add", name, "type", "bridge")
    wanted = {f"{plan.node_address}/{plan.pod_network.prefixlen}", f"{plan.api_address}/32"}
    (interface,) = json.loads(_ip("-json", "-4", "address", "show", "dev", name)) or [{}]
    found = {f"{item['local']}/{item['prefixlen']}" for item in interface.get("addr_info", [])}
    for address in sorted(wanted - found):
        _ip("address", "add", address, "dev", name)
    _ip("link", "set", name, "up")


def remove_bridge(name: str) -> None:
    """Remove the bridge, and with it its addresses and routes. Idempotent."""
    if has_bridge(name):
        _ip("link", "delete", name)
