"""A Python image made of the interpreter that runs this, without a registry.

Interpreter, standard library, packages and shared libraries are at the same
paths in the image as on this machine, so that nothing has to be relocated.
Four layers, from what changes least: busybox, interpreter, packages, the
user's files.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from provisioner.errors import UsageError
from provisioner.sandbox.binaries import path_of
from provisioner.sandbox.images import distributions
from provisioner.sandbox.images.archive import ImageConfig, write_archive
from provisioner.sandbox.images.busybox import busybox_layer
from provisioner.sandbox.images.bytecode import add_bytecode
from provisioner.sandbox.images.layer import Store, Tree, forget, image_cache
from provisioner.sandbox.images.libraries import is_library, libraries_of
from provisioner.sandbox.images.reference import full_name

PYTHON_IMAGE = "localhost/python:sandbox"

_NOT_AT_WORK = frozenset(
    {"__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages"}
    | {"dist-packages"}
)
# Loaded by the C library by name when a program looks up a host or ends a thread, so that no ELF file tells of them.
_LOADED_BY_NAME = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libgcc_s.so.1")


@dataclass(frozen=True)
class Addition:
    """A file or folder that goes into the image.

    Attributes:
        source: On this machine.
        target: Absolute path in the image.
    """

    source: Path
    target: str

    @classmethod
    def parse(cls, text: str) -> Addition:
        """Read `LOCAL_PATH:IMAGE_PATH`.

        Raises:
            UsageError: It has another form, or the local path does not exist.
        """
        source, colon, target = text.rpartition(":")
        if not colon or not source or not PurePosixPath(target).is_absolute() or ".." in PurePosixPath(target).parts:
            raise UsageError(
                f"--add {text!r} is not of the form LOCAL_PATH:IMAGE_PATH with an absolute IMAGE_PATH",
                reason="InvalidAddition",
                hint="for example --add ./service:/app/service",
            )
        if not Path(source).exists():
            raise UsageError(f"--add {text!r}: there is no {source}", reason="NoSuchFile")
        return cls(Path(source), target)


def build_python_image(
    packages: Iterable[str],
    *,
    name: str = PYTHON_IMAGE,
    add: Iterable[Addition] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Build an image with Python and these packages.

    Args:
        packages: Requirements that are installed in this environment.
        name: The image's name.
        add: Files and folders that go on top.
        progress: Told what is being done.

    Returns:
        The archive: an OCI image layout and a Docker archive in one tar.

    Raises:
        UsageError: A package is not installed, or the name is no image name.
        PermanentError: This machine lacks a static busybox or a tool.

    Example:
        >>> build_python_image(["numpy"])  # doctest: +SKIP
    """
    full_name(name)
    chosen = distributions.closure(packages)
    store = Store(image_cache())
    progress("packing the interpreter")
    interpreter = _interpreter()
    layers = [busybox_layer(path_of("busybox"), store), store.pack(interpreter)]
    if chosen:
        progress("packing " + ", ".join(f"{item.metadata['Name']} {item.version}" for item in chosen))
        tree = Tree()
        for item in chosen:
            for path, source in distributions.files(item).items():
                tree.file(f"{_packages_folder()}/{path}", source)
            for command, content in distributions.commands(item, str(_program())).items():
                tree.text(f"/usr/local/bin/{command}", content, 0o755)
        missing = _add_libraries(tree, present=interpreter)
        add_bytecode(tree)
        if missing:
            progress(f"note: not on this machine, so not in the image: {', '.join(sorted(missing))}")
        layers.append(store.pack(tree))
    additions = list(add)
    if additions:
        progress("packing " + ", ".join(str(item.source) for item in additions))
        layers.append(store.pack(_added(additions)))
    archive = write_archive(name, layers, ImageConfig(("python3",)), store, image_cache())
    forget(image_cache())
    return archive


def _packages_folder() -> str:
    """Where the interpreter looks for packages when it runs outside a virtual environment."""
    return site.getsitepackages([sys.base_prefix])[0]


def _program() -> Path:
    """The interpreter outside any virtual environment."""
    return Path(sys._base_executable).resolve()  # type: ignore[attr-defined]


def _interpreter() -> Tree:
    tree = Tree()
    program = _program()
    tree.file(str(program), program)
    for alias in ("python", "python3", f"python3.{sys.version_info.minor}"):
        if f"/usr/local/bin/{alias}" != str(program):
            tree.link(f"/usr/local/bin/{alias}", str(program))
    tree.folder(_packages_folder())
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    base |= {"installed_base": sys.base_prefix, "installed_platbase": sys.base_exec_prefix}
    roots = {Path(sysconfig.get_path(kind, vars=base)) for kind in ("stdlib", "platstdlib")}
    extensions = []
    for root in sorted(roots):
        for path in _standard_library(root):
            if is_library(path):
                extensions.append(path)
            else:
                tree.file(str(path), path)
    # A module whose library is not on this machine cannot be imported here either.
    broken = {path for path, needed in libraries_of(extensions).items() if needed.missing}
    for path in extensions:
        if path not in broken:
            tree.file(str(path), path)
    _add_libraries(tree, present=Tree())
    add_bytecode(tree)
    return tree


def _standard_library(root: Path) -> Iterator[Path]:
    for folder, names, found in os.walk(root):
        names[:] = sorted(name for name in names if name not in _NOT_AT_WORK and not name.startswith("config-"))
        for name in sorted(found):
            path = Path(folder, name)
            if path.suffix not in (".pyc", ".a") and path.is_file():
                yield path


def _add_libraries(tree: Tree, *, present: Tree) -> frozenset[str]:
    """Add what the tree's files load and neither tree has; returns what the loader does not find."""
    files = [entry.source for entry in tree.entries.values() if entry.source is not None]
    needed = libraries_of(path for path in files if is_library(path) or path == _program())
    inside = {os.path.realpath(path) for path in files}
    found = {path for one in needed.values() for path in one.found if os.path.realpath(path) not in inside}
    libc = next((path.parent for path in sorted(found) if path.name.startswith("libc.so")), None)
    if libc is not None:
        found |= {libc / name for name in _LOADED_BY_NAME if (libc / name).exists()}
    for path in sorted(found):
        if str(path) in present.entries:
            continue
        tree.file(str(path), path)
        # The image has no loader cache, so a library in a folder of its own is found by a link beside the C library.
        if libc is not None and path.parent != libc and not path.name.startswith("ld-"):
            tree.link(str(libc / path.name), str(path))
    return frozenset(name for one in needed.values() for name in one.missing)


def _added(additions: list[Addition]) -> Tree:
    tree = Tree()
    for item in additions:
        if item.source.is_file():
            tree.file(item.target, item.source)
            continue
        tree.folder(item.target)
        for folder, names, found in os.walk(item.source):
            names[:] = sorted(name for name in names if name != "__pycache__")
            inner = PurePosixPath(item.target) / Path(folder).relative_to(item.source).as_posix()
            links = [name for name in [*names, *found] if Path(folder, name).is_symlink()]
            for name in links:
                tree.link(str(inner / name), str(Path(folder, name).readlink()))
            for name in names:
                if name not in links:
                    tree.folder(str(inner / name))
            for name in found:
                if name not in links and Path(folder, name).is_file():
                    tree.file(str(inner / name), Path(folder, name))
    return tree
