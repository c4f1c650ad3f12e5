"""Start one process that outlives us, in namespaces of its own, on the record before it runs.

Why a program of its own: joining a PID namespace changes the caller for good,
and only a process without threads may join a mount or user namespace, which
the caller (progress display, test runner) is not. Why the record is written
here: between fork and exec the child waits until its identity is on disk, so
that there is never a process of ours that nobody knows of, whenever we are
killed. It is run as `python -I -S launch.py` with a `Launch` as JSON on stdin
and imports nothing of the package.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

# <linux/sched.h> and <sys/mount.h>
CLONE = {"user": 0x10000000, "pid": 0x20000000, "mnt": 0x00020000, "net": 0x40000000}
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_SLAVE, MS_SHARED = 2, 4, 8, 4096, 16384, 1 << 19, 1 << 20
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def _call(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}{arguments}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def unshare(kinds: list[str]) -> None:
    """Leave the namespaces of these kinds for new ones.

    Args:
        kinds: Of `user`, `pid`, `mnt` and `net`.
    """
    if not kinds:
        return
    user, group = os.getuid(), os.getgid()
    _call("unshare", sum(CLONE[kind] for kind in kinds))
    if "user" in kinds:
        # user_namespaces(7): gid_map may be written only once setgroups is denied.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def join(pid: int, kinds: list[str]) -> None:
    """Enter the namespaces of another process.

    Args:
        pid: The process, as seen from here.
        kinds: Of `user`, `pid`, `mnt` and `net`.
    """
    handles = [(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC), CLONE[kind]) for kind in kinds]
    for handle, flag in handles:
        _call("setns", handle, flag)
        os.close(handle)


def _arrange_mounts(mounts: list[dict[str, str]]) -> None:
    # Slave: what the host mounts later is seen here. Shared: what is mounted here spreads to the pods that ask for it,
    # and not back.
    _mount("none", "/", "", MS_REC | MS_SLAVE)
    _mount("none", "/", "", MS_REC | MS_SHARED)
    # A source is opened first, since an earlier mount may hide its path.
    handles = [os.open(item["source"], os.O_PATH) if item["kind"] == "bind" else -1 for item in mounts]
    for item, handle in zip(mounts, handles, strict=True):
        target = item["target"]
        if item["kind"] == "bind":
            if Path(f"/proc/self/fd/{handle}").is_dir():
                Path(target).mkdir(parents=True, exist_ok=True)
            _mount(f"/proc/self/fd/{handle}", target, "", MS_BIND | MS_REC)
            os.close(handle)
        elif item["kind"] == "proc":
            _mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        else:
            _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot (proc_pid_stat(5), field 22)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])


def _become(launch: dict[str, Any], go: int, failed: int) -> NoReturn:
    """In the child: wait for the word, then turn into the program."""
    try:
        if not os.read(go, 1):
            os._exit(1)
        os.setsid()
        os.umask(0o022)
        log = os.open(launch["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        inner = [kind for kind in ("net", "mnt") if kind in launch["kinds"]]
        if launch["join"]:
            join(launch["join"], inner)
        else:
            unshare(inner)
            if "mnt" in inner:
                _arrange_mounts(launch["mounts"])
        os.chdir(launch["cwd"])
        os.execve(launch["argv"][0], launch["argv"], launch["env"])  # noqa: S606 - a shell would only be in the way
    except BaseException as error:  # noqa: BLE001 - the child has no caller: whatever happened is told to the parent
        os.write(failed, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def main() -> int:
    """Read one `Launch` from stdin and carry it out; 0 once the program runs."""
    launch: dict[str, Any] = json.load(sys.stdin)
    # Whoever wants a process and dies meanwhile shall not get one: nobody holds the sandbox's lock any more.
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launch["parent"]:
        return 1
    outer = [kind for kind in ("user", "pid") if kind in launch["kinds"]]
    if launch["join"]:
        join(launch["join"], outer)
    else:
        unshare(outer)
    wait, go = os.pipe()
    told, failed = os.pipe()  # closed by a successful exec
    child = os.fork()
    if child == 0:
        os.close(go)
        os.close(told)
        _become(launch, wait, failed)
    os.close(failed)
    os.close(wait)
    record = Path(launch["record"])
    fresh = record.with_suffix(".new")
    fresh.write_text(json.dumps({**launch["identity"], "pid": child, "start": start_time(child)}))
    fresh.replace(record)
    os.write(go, b"1")
    error = b""
    while part := os.read(told, 4096):
        error += part
    if error:
        record.unlink()
        print(error.decode(errors="replace"), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
