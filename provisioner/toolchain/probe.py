"""Ask a binary for its version, and find the ones that are already on the machine.

A file name says nothing: a binary counts as suitable only after it was run
and told a version that its pin accepts. Each is run with a short limit, since
what lies on PATH under that name may do anything.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from provisioner import settings
from provisioner.errors import PermanentError
from provisioner.toolchain.pins import Kit, Package, Pin, Probe
from provisioner.toolchain.record import Source

TIMEOUT_S = 20.0
_DPKG_INFO = Path("/var/lib/dpkg/info")
_PT_LOAD = 1
_PT_INTERP = 3


@dataclass(frozen=True)
class Candidate:
    """A binary found on the machine that was not recorded.

    Attributes:
        path: Where.
        version: What it told; "" when it told none.
        source: Who owns it.
        fault: Why it will not do; "" when it will.
    """

    path: Path
    version: str
    source: Source
    fault: str


def _printed_version(path: Path, probe: Probe) -> str:
    command = [str(path), *probe.arguments]
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = (done.stdout + b"\n" + done.stderr).decode(errors="replace")
    found = re.search(probe.pattern, text, re.MULTILINE)
    return found[1] if found else ""


def _module_version(path: Path, module: str) -> str:
    # Go keeps the list of modules in every binary, one "dep" (or "mod") line each: the text that `go version -m` shows.
    pattern = rb"\n(?:dep|mod)\t" + re.escape(module.encode()) + rb"\t(v[^\t\n]+)"
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = re.search(pattern, content)
            return found[1].decode() if found else ""
    except (OSError, ValueError):  # mmap refuses an empty file with a ValueError
        return ""


def _asked_version(path: Path, service: str) -> str:
    import grpc
    from google.protobuf.empty_pb2 import Empty
    from pulumi.runtime.proto import language_pb2_grpc, provider_pb2_grpc

    stub_class = (
        provider_pb2_grpc.ResourceProviderStub if service == "provider" else language_pb2_grpc.LanguageRuntimeStub
    )
    # The language host wants the engine's address, and looks at it minutes later at the earliest; it is never called.
    command = [str(path)] if service == "provider" else [str(path), "127.0.0.1:1"]
    try:
        plugin = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    try:
        port = _first_line(plugin)
        if not port.isdigit():
            return ""
        # gRPC would take the way through $https_proxy even to this very machine.
        with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
            return str(stub_class(channel).GetPluginInfo(Empty(), timeout=TIMEOUT_S).version)
    except grpc.RpcError:
        return ""
    finally:
        plugin.kill()
        plugin.wait()
        if plugin.stdout is not None:
            plugin.stdout.close()


def _first_line(plugin: subprocess.Popen[bytes]) -> str:
    import select

    if plugin.stdout is None:
        return ""
    readable, _, _ = select.select([plugin.stdout], [], [], TIMEOUT_S)
    return plugin.stdout.readline().decode(errors="replace").strip() if readable else ""


@lru_cache(maxsize=256)
def _version(path: Path, size: int, modified: int, probe: Probe, module: str) -> str:  # noqa: ARG001
    # Size and time are only part of the memo's key: a file that was replaced is asked again.
    if probe.module:
        told = _module_version(path, module)
    elif probe.service:
        told = _asked_version(path, probe.service)
    else:
        told = _printed_version(path, probe)
    return told.removeprefix("v")


def version_of(path: Path, pin: Pin) -> str:
    """The version that a binary tells, without a leading v.

    Args:
        path: The binary.
        pin: How it is to be asked.

    Returns:
        The version, or "" when it cannot be run or tells none.
    """
    try:
        found = path.stat()
    except OSError:
        return ""
    module = pin.origin.module if isinstance(pin.origin, Kit) else ""
    return _version(path, found.st_size, found.st_mtime_ns, pin.probe, module)


def is_static(path: Path) -> bool:
    """Whether an ELF binary needs no dynamic loader.

    The rule is ELF's own: what is to be run has a PT_LOAD header, and a
    PT_INTERP header when a loader is to be run first.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(64)
            if start[:4] != b"\x7fELF" or len(start) < 64:
                return False
            wide, order = start[4] == 2, "<" if start[5] == 1 else ">"
            # Where the table of headers begins, how long each is, and how many there are.
            table = struct.unpack_from(f"{order}{'Q' if wide else 'I'}", start, 32 if wide else 28)[0]
            size, count = struct.unpack_from(f"{order}HH", start, 54 if wide else 42)
            stream.seek(table)
            headers = stream.read(size * count)
    except OSError:
        return False
    if size < 4 or len(headers) < size * count:
        return False
    kinds = {struct.unpack_from(f"{order}I", headers, index * size)[0] for index in range(count)}
    return _PT_LOAD in kinds and _PT_INTERP not in kinds


def owner(path: Path, package: str) -> Source:
    """Whether Debian's package manager put a file there.

    Args:
        path: The file.
        package: The package that would own it.
    """
    # With /bin and /usr/bin merged a package may list either name.
    real = str(path.resolve())
    names = {str(path), real, real.removeprefix("/usr"), f"/usr{real}"}
    for listing in (*_DPKG_INFO.glob(f"{package}.list"), *_DPKG_INFO.glob(f"{package}:*.list")):
        if not names.isdisjoint(listing.read_text(encoding="utf-8", errors="replace").splitlines()):
            return "debian"
    return "path"


def _places(pin: Pin) -> list[Path]:
    if isinstance(pin.origin, Package) and pin.origin.folders:
        return [Path(folder) / pin.name for folder in pin.origin.folders]
    # Daemons are in sbin, which is not on everybody's PATH.
    extra = ["/usr/local/sbin", "/usr/sbin", "/sbin"] if isinstance(pin.origin, Package) else []
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *extra]
    ours = settings.cache_home().resolve()
    found = []
    for folder in folders:
        place = Path(folder) / pin.name
        # What lies in our own cache is judged by its record alone.
        if folder and not place.resolve().is_relative_to(ours):
            found.append(place)
    return found


def check(path: Path, pin: Pin) -> Candidate:
    """Whether a binary will do for a pin.

    Args:
        path: The binary.
        pin: What is wanted.
    """
    source = owner(path, pin.origin.name) if isinstance(pin.origin, Package) else "path"
    if pin.static and not is_static(path):
        return Candidate(path, "", source, f"{path} needs shared libraries, and one that needs none is wanted")
    version = version_of(path, pin)
    if not version:
        return Candidate(path, "", source, f"{path} tells no version")
    if not pin.accepts(version):
        return Candidate(path, version, source, f"{path} is {version}, and {pin.wanted} is wanted")
    return Candidate(path, version, source, "")


def search(pin: Pin) -> Candidate | None:
    """The binary of that name on the machine: the first that will do, else the first, else None.

    Args:
        pin: What is wanted.
    """
    rejected: Candidate | None = None
    for place in _places(pin):
        if shutil.which(str(place)) is None:
            continue
        found = check(place, pin)
        if not found.fault:
            return found
        rejected = rejected or found
    return rejected


def demand(path: Path, pin: Pin) -> str:
    """The version of a binary that was just provided.

    Raises:
        PermanentError: It is not the one that was wanted.
    """
    found = check(path, pin)
    if found.fault:
        raise PermanentError(
            found.fault, reason="ToolUnusable", hint="the file was not installed; see the log of its build, if any"
        )
    return found.version
