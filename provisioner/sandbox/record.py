"""Know a process again for certain.

A pid alone proves nothing: it may have been given to somebody else since, or
the machine may have restarted. A process of ours is therefore its pid, its
start time and the boot it was started in, and no signal is sent unless all
three still hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

_PF_EXITING = 0x4  # <linux/sched.h>


@dataclass(frozen=True)
class Record:
    """What is known of a process that was started.

    Attributes:
        pid: Its number in the caller's PID namespace.
        start: Clock ticks between boot and its start.
        boot: The kernel's id of the boot it was started in.
        fingerprint: Of its command line and files.
        since: Seconds since the epoch at its start.
        port: The TCP port that it listens on, if any.
    """

    pid: int
    start: int
    boot: str
    fingerprint: str
    since: float
    port: int | None = None


@lru_cache(maxsize=1)
def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Life(Enum):
    """How far a process has come."""

    RUNNING = "running"
    ENDING = "ending"
    GONE = "gone"


def life(record: Record) -> Life:
    """How far this very process has come; a zombie is gone.

    The holder of a PID namespace ends only after all inside have, which can be
    seen to be dead while it still is there.
    """
    if record.boot != boot_id():
        return Life.GONE
    try:
        stat = Path(f"/proc/{record.pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return Life.GONE
    fields = stat.rpartition(")")[2].split()  # proc_pid_stat(5), from field 3 on
    if fields[0] in "ZX" or int(fields[19]) != record.start:
        return Life.GONE
    return Life.ENDING if int(fields[6]) & _PF_EXITING else Life.RUNNING


def is_alive(record: Record) -> bool:
    """Whether this very process still runs."""
    return life(record) is Life.RUNNING
