import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from ports import held_ports

from provisioner.sandbox import relay


def echo(listener: socket.socket) -> None:
    """Answers with what it has read once the caller has said all, as a one-shot HTTP server would."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            data = b""
            while part := connection.recv(65536):
                data += part
            connection.sendall(data[::-1])


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server, held_ports(1) as (free,):
        port = int(free)
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        to = f"--to=127.0.0.1:{server.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-I", "-S", relay.__file__, f"--listen=127.0.0.1:{port}", to]
        ) as process:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            yield port
            process.kill()
        server.shutdown(socket.SHUT_RDWR)


def ask(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as call:
        call.sendall(data)
        call.shutdown(socket.SHUT_WR)
        answer = b""
        while part := call.recv(65536):
            answer += part
    return answer


def test_everything_arrives_in_both_directions_after_one_side_has_ended(port: int) -> None:
    data = bytes(range(256)) * 8000
    assert ask(port, data) == data[::-1]


def test_calls_at_once_do_not_mix(port: int) -> None:
    answers: dict[int, bytes] = {}

    def call(number: int) -> None:
        answers[number] = ask(port, str(number).encode() * 1000)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(10, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: (str(number).encode() * 1000)[::-1] for number in range(10, 40)}


def test_a_caller_that_breaks_off_does_not_harm_the_next(port: int) -> None:
    rude = socket.create_connection(("127.0.0.1", port), timeout=20)
    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    rude.sendall(b"x" * 100)
    rude.close()
    assert ask(port, b"abc") == b"cba"
