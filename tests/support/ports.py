"""Ports for servers that cannot say which one they chose."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


def hold_port() -> tuple[socket.socket, int]:
    """A free port that nobody is given by chance: only a server that asks for it can have it.

    Returns:
        What holds it until it is closed, bound and not listening, and the port.
        A server that asks for SO_REUSEADDR may bind there, as those of gRPC and
        of Python do.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    # Afterwards, so that no two of them get the same one.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held, int(held.getsockname()[1])


@contextmanager
def held_ports(count: int) -> Iterator[list[str]]:
    """Several ports, each as `hold_port` gives it.

    Args:
        count: How many.
    """
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            held, port = hold_port()
            stack.enter_context(held)
            ports.append(str(port))
        yield ports
