"""Run one command so that it cannot outlive the process that asked for it.

A build is a tree of processes. When the installer is killed outright it can
end none of them, and the next installer would build beside them. So each
command runs below this guard, in a process group of its own: the guard reads
a pipe whose other end the installer holds, and when that end closes, for
whatever reason, it ends the whole group, itself included. The guard also
holds the installer's lock, which so is free only once all is over.

It is started by its path and without site packages, to start fast.
"""

import os
import signal
import subprocess
import sys
import threading


def _watch() -> None:
    while os.read(0, 64):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(command: list[str]) -> int:
    """Run a command, and return its exit code (128 + N for signal N)."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=_watch, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))
