"""See each change that a process and its children make to files, before it is made: to let it pass, refuse it, or wait.

The kernel holds the caller in its system call until this side has answered
(seccomp's user notification), so what happens between two changes can be
chosen exactly, and no change is missed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1
_AT_FDCWD = -100
_LONGEST_PATH = 4096

# Number -> name, index of the argument with the folder (None: the process's own), index of the path that is changed.
_CALLS: Mapping[int, tuple[str, int | None, int]] = {
    "x86_64": {
        2: ("create", None, 0),
        82: ("rename", None, 1),
        83: ("mkdir", None, 0),
        84: ("rmdir", None, 0),
        85: ("create", None, 0),
        86: ("link", None, 1),
        87: ("unlink", None, 0),
        257: ("create", 0, 1),
        258: ("mkdir", 0, 1),
        263: ("unlink", 0, 1),
        264: ("rename", 2, 3),
        265: ("link", 2, 3),
        316: ("rename", 2, 3),
    },
    "aarch64": {
        34: ("mkdir", 0, 1),
        35: ("unlink", 0, 1),
        37: ("link", 2, 3),
        38: ("rename", 2, 3),
        56: ("create", 0, 1),
        276: ("rename", 2, 3),
    },
}[platform.machine()]


@dataclass(frozen=True)
class FileChange:
    """One change that is about to be made.

    Attributes:
        pid: The process that makes it.
        verb: `create`, `rename`, `link`, `unlink`, `mkdir` or `rmdir`.
        path: What comes to be, or goes.
    """

    pid: int
    verb: str
    path: Path


Decide = Callable[[FileChange], int]
"""Called for each change, in a thread; gives 0 to let it pass, or the error number that the caller gets instead."""


class Traced:
    """A process and all that it starts, each change of files told.

    Args:
        command: What to run.
        decide: Decides on each change.
        environment: Its whole environment.
        output: Where it writes.
        host: Name of the host that it sees; "" for the real one.
    """

    def __init__(
        self,
        command: Sequence[str],
        decide: Decide,
        environment: Mapping[str, str],
        output: IO[bytes],
        host: str = "",
    ) -> None:
        ours, theirs = socket.socketpair()
        launcher = str(Path(__file__).with_name("traced.py"))
        with ours:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, launcher, str(theirs.fileno()), host, *command],
                    env=dict(environment),
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        assert descriptors, "the filter could not be installed"
        self._decide = decide
        threading.Thread(target=self._serve, args=(descriptors[0],), name="syscalls", daemon=True).start()

    def _serve(self, listener: int) -> None:
        try:
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            while True:
                ((_, events),) = poll.poll()
                if events & select.POLLIN:
                    self._answer(listener)
                elif events & select.POLLHUP:
                    return  # the last process with this filter has ended
        finally:
            os.close(listener)

    def _answer(self, listener: int) -> None:
        buffer = bytearray(_NOTIFICATION.size)
        # A caller that was killed meanwhile is not there any more (ENOENT).
        with suppress(FileNotFoundError):
            fcntl.ioctl(listener, _RECEIVE, buffer)
            identity, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
            refusal = 0
            change = _change(thread, number, arguments)
            if change is not None:
                refusal = self._decide(change)
            answer = _ANSWER.pack(identity, 0, -refusal, 0 if refusal else _CONTINUE)
            fcntl.ioctl(listener, _SEND, answer)


def _change(thread: int, number: int, arguments: Sequence[int]) -> FileChange | None:
    verb, folder_index, path_index = _CALLS[number]
    try:
        process = _process_of(thread)
        path = Path(os.fsdecode(_text(thread, arguments[path_index])))
        if not path.is_absolute():
            path = _folder(process, arguments[folder_index] if folder_index is not None else None) / path
    except OSError:
        return None  # it has been killed
    return FileChange(process, verb, path)


def _process_of(thread: int) -> int:
    for line in Path(f"/proc/{thread}/status").read_text().splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    raise ProcessLookupError(errno.ESRCH, "no such thread")


def _text(thread: int, address: int) -> bytes:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        # A read may not cross into a page that is not there.
        content = b""
        while b"\0" not in content and len(content) < _LONGEST_PATH:
            content += memory.read(4096 - (address + len(content)) % 4096)
        return content.partition(b"\0")[0]


def _folder(process: int, descriptor: int | None) -> Path:
    signed = None if descriptor is None else (descriptor & 0xFFFFFFFF) - (descriptor >> 31 & 1) * (1 << 32)
    link = "cwd" if signed is None or signed == _AT_FDCWD else f"fd/{signed}"
    return Path(f"/proc/{process}/{link}").readlink()
