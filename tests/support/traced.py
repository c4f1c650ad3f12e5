"""Become a command whose changes to files are told to somebody, before each is made (see `syscalls`).

Usage: traced.py SOCKET HOST COMMAND...

Installs a seccomp filter that hands the system calls in question to a
listener, sends the listener through the socket, and becomes the command. The
filter is inherited by all that the command starts. Where HOST is not empty, that
is the name of the host that they see. The command is asked to end when the
thread that started it has ended: tests that were interrupted leave no server.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import struct
import sys

_CLONE_NEWUTS = 0x04000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
# linux/bpf_common.h: load a word, jump if equal, jump if any bit is set, return.
_LOAD, _IF_EQUAL, _IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

# Machine -> (audit's name of it, number of seccomp(2), number -> index of the flags of the calls that open,
# numbers of the calls that always change something).
_MACHINES = {
    "x86_64": (0xC000003E, 317, {2: 1, 257: 2}, (82, 83, 84, 85, 86, 87, 258, 263, 264, 265, 316)),
    "aarch64": (0xC00000B7, 277, {56: 2}, (34, 35, 37, 38, 276)),
}


def _filter() -> bytes:
    architecture, _, opening, changing = _MACHINES[platform.machine()]

    def step(code: int, value: int, then: int = 0, other: int = 0) -> bytes:
        return struct.pack("=HBBI", code, then, other, value)

    # From the last step to the first: a jump counts the steps behind the one that makes it.
    notify, allow = step(_RETURN, _NOTIFY), step(_RETURN, _ALLOW)
    steps = [allow, notify]
    for number, index in opening.items():
        flags = [
            step(_LOAD, _ARGUMENTS + 8 * index),
            step(_IF_SET, os.O_CREAT, len(steps) - 1, len(steps) - 2),
        ]
        # Not this call: over the look at its flags.
        steps = [step(_IF_EQUAL, number, 0, len(flags)), *flags, *steps]
    for number in changing:
        steps = [step(_IF_EQUAL, number, len(steps) - 1), *steps]
    steps = [
        step(_LOAD, _ARCHITECTURE),
        step(_IF_EQUAL, architecture, 1, 0),
        allow,
        step(_LOAD, _NUMBER),
        *steps,
    ]
    return b"".join(steps)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _listener() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    content = _filter()
    kept = ctypes.create_string_buffer(content)
    program = struct.pack("@HP", len(content) // 8, ctypes.addressof(kept))
    descriptor = libc.syscall(_MACHINES[platform.machine()][1], _SET_MODE_FILTER, _NEW_LISTENER, program)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(descriptor)


def _call_host(name: str) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(name)


def main() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if sys.argv[2]:
        _call_host(sys.argv[2])
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        descriptor = _listener()
        socket.send_fds(channel, [b"."], [descriptor])
        os.close(descriptor)
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - to become it is the purpose


if __name__ == "__main__":
    main()
