"""Ports for servers that cannot say which one they chose."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def held_ports(count: int) -> Iterator[list[str]]:
    """Free ports that nobody is given by chance: only a server that asks for one of them can have it.

    The sockets are bound and do not listen, and allow others to bind there:
    servers of gRPC ask for SO_REUSEPORT, those of Python for SO_REUSEADDR.

    Args:
        count: How many.
    """
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            held = stack.enter_context(socket.socket())
            # Afterwards, so that no two of them get the same one.
            held.bind(("127.0.0.1", 0))
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                held.setsockopt(socket.SOL_SOCKET, option, 1)
            ports.append(str(held.getsockname()[1]))
        yield ports
