"""Bytecode for the Python files of an image, so that no container compiles them at its start.

Importing numpy takes a container several times as long without. The files are
compiled for their place in the image and are never checked against their
source there. A process of its own compiles all in a fixed order with a fixed
hash seed, so that the same sources give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from provisioner.errors import PermanentError
from provisioner.sandbox.images.layer import Tree, image_cache

_COMPILE = """
import json, os, py_compile, sys
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for source, target, shown in json.load(sys.stdin):
    try:
        py_compile.compile(source, target + ".new", shown, doraise=True, invalidation_mode=mode)
    except (py_compile.PyCompileError, SyntaxError, ValueError):
        open(target + ".new", "wb").close()
    os.replace(target + ".new", target)
"""


def add_bytecode(tree: Tree) -> None:
    """Add the bytecode of every Python file of a tree.

    A file that this Python cannot compile (a template, or for another
    version) gets none, as it would be skipped by a package installer too.

    Args:
        tree: Where the files are and where the bytecode goes.

    Raises:
        PermanentError: The compiler itself fails.
    """
    folder = image_cache() / "bytecode"
    folder.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, tuple[Path, Path]] = {}
    for path, entry in sorted(tree.entries.items()):
        if path.endswith(".py") and entry.source is not None:
            content = hashlib.sha256(entry.source.read_bytes()).hexdigest()
            facts = repr((path, importlib.util.MAGIC_NUMBER, content))
            wanted[path] = (entry.source, folder / hashlib.sha256(facts.encode()).hexdigest())
    missing = [(str(source), str(target), path) for path, (source, target) in wanted.items() if not target.exists()]
    if missing:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _COMPILE],
            input=json.dumps(missing),
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONHASHSEED": "0"},
        )
        if done.returncode != 0:
            raise PermanentError(f"compiling Python files failed: {done.stderr.strip()[-500:]}", reason="CompileFailed")
    for path, (_, target) in wanted.items():
        if target.stat().st_size:
            tree.file(importlib.util.cache_from_source(path, optimization=""), target)
