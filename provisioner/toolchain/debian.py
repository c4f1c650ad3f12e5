"""Debian packages: those binaries whose build would need C libraries.

apt-get is run only as root on Debian, and never removes a package to make
room for another. Else the packages are named, for whoever may install them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from provisioner.errors import PermanentError
from provisioner.toolchain import probe, process, work
from provisioner.toolchain.pins import Package, Pin
from provisioner.toolchain.work import Work

_LOG = "packages"


def apt_command(packages: Sequence[str], *, download: bool) -> list[str]:
    """The command that downloads or installs packages.

    Args:
        packages: Their names.
        download: Download them only.
    """
    options = ["--yes", "--no-install-recommends", "--no-remove", "-o", "DPkg::Lock::Timeout=120"]
    return ["apt-get", "install", *options, *(["--download-only"] if download else []), *packages]


def refusal(packages: Sequence[str], *, is_debian: bool, is_root: bool) -> PermanentError | None:
    """The error of a machine on which packages cannot be installed; None where they can.

    Args:
        packages: Their names in Debian.
        is_debian: Whether apt-get is there.
        is_root: Whether this process may use it.
    """
    names = " ".join(packages)
    if not is_debian:
        return PermanentError(
            f"this machine has no apt-get, and these are missing (named as in Debian): {names}",
            reason="PackagesMissing",
            hint="install them with the machine's own package manager, or work with hollow nodes only",
        )
    if not is_root:
        return PermanentError(
            f"Debian packages are missing, and only root can install them: {names}",
            reason="PackagesMissing",
            hint=f"run: sudo apt-get install --no-install-recommends {names}",
        )
    return None


def _is_debian() -> bool:
    return Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def install(packages: Sequence[Package], pins: Sequence[Pin], working: Work) -> list[tuple[Pin, probe.Candidate]]:
    """Install packages and find the binaries that they were installed for.

    Args:
        packages: The packages.
        pins: The binaries expected of them.
        working: The installation under way.

    Returns:
        Each binary and where it was found.

    Raises:
        PermanentError: They cannot be installed here, or hold no suitable binary.
    """
    names = [package.name for package in packages]
    refused = refusal(names, is_debian=_is_debian(), is_root=os.geteuid() == 0)
    if refused is not None:
        raise refused
    log = working.log_of(_LOG)
    log.unlink(missing_ok=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if working.run(_LOG, apt_command(names, download=True), environment).code != 0:
        # A fresh machine or image has no package lists, or lists of files that are gone.
        working.run(_LOG, ["apt-get", "update"], environment)
        outcome = working.run(_LOG, apt_command(names, download=True), environment)
        if outcome.code != 0:
            raise work.fail(" ".join(names), log, outcome, "downloading")
    outcome = process.run_to_end(apt_command(names, download=False), log=log, environment=environment)
    if outcome.code != 0:
        raise work.fail(" ".join(names), log, outcome, "installing")
    return [(pin, _found(pin)) for pin in pins]


def _found(pin: Pin) -> probe.Candidate:
    candidate = probe.search(pin)
    if candidate is None or candidate.fault:
        why = candidate.fault if candidate else f"{pin.name} is not there"
        raise PermanentError(
            f"the Debian package {pin.origin.name} is installed, but {why}",
            reason="ToolUnusable",
            hint=f"put a {pin.name} of version {pin.wanted} on PATH",
        )
    return candidate
