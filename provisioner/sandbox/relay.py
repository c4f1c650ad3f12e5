"""Pass TCP connections on to the API server from where it does not listen itself.

The API server has one listening address, loopback. Two sorts of callers are
elsewhere: pods, which call the Service `kubernetes` (an address on the
bridge), and hollow nodes, which live in a network namespace without a way
out. The relay listens there and knows nothing of what it passes on: TLS and
credentials are between the two ends. It is run as `python -I -S relay.py` and
imports nothing of the package but its neighbour `launch.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path


def listening_socket(address: str, port: int) -> socket.socket:
    """A socket that listens in the network namespace we are in now."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(128)
    return listener


def socket_inside(pid: int, kinds: list[str], address: str, port: int) -> socket.socket:
    """A socket that listens in the namespaces of another process.

    A child joins them and hands the socket back, because whoever has entered
    another user namespace cannot return.
    """
    sys.path.insert(0, str(Path(__file__).parent))
    from launch import join  # type: ignore[import-not-found]

    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            join(pid, kinds)
            listener = listening_socket(address, port)
            socket.send_fds(theirs, [b"1"], [listener.fileno()])
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(0)
    theirs.close()
    _, handles, _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(child, 0)
    if not handles:
        raise OSError(f"cannot listen on {address}:{port} in the namespaces of process {pid}")
    return socket.socket(fileno=handles[0])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def serve(listener: socket.socket, address: str, port: int) -> None:
    """Pass every connection on, until the process is ended.

    Args:
        listener: Where callers come in.
        address: Where they go.
        port: Its TCP port.
    """

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # An end that breaks off ends the other as well; both sides of the call notice and repeat it.
        with contextlib.suppress(OSError):
            onward_reader, onward_writer = await asyncio.open_connection(address, port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, onward_writer))
                    group.create_task(_copy(onward_reader, writer))
            except* OSError:
                pass
            finally:
                onward_writer.close()
        writer.close()

    # The event loop itself does not keep a task alive.
    calls: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.ensure_future(passed_on(reader, writer))
        calls.add(call)
        call.add_done_callback(calls.discard)

    server = await asyncio.start_server(accept, sock=listener)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--to", required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--inside", type=int, default=0, metavar="PID")
    parser.add_argument("--kinds", default="net", help="the namespaces of --inside to join, by comma")
    words = parser.parse_args()
    (address, port), (to_address, to_port) = words.listen.split(":"), words.to.split(":")
    if words.inside:
        listener = socket_inside(words.inside, words.kinds.split(","), address, int(port))
    else:
        listener = listening_socket(address, int(port))
    asyncio.run(serve(listener, to_address, int(to_port)))


if __name__ == "__main__":
    main()
