"""From a file, a folder or a ConfigMap to the sections that concern agents.

An operator should be able to hand over what is deployed, unchanged: a plain
YAML file, the ConfigMap of the propeller as `kubectl get -o yaml` prints it, or
the folder that such a ConfigMap is mounted as. All of them come down to YAML
documents that are merged in order, as the propeller merges its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from provisioner.errors import Problem, SpecError, UsageError

BLOCKS = ("agent-service", "connector-service")
"""The two propeller plugins that call agents; older and newer name."""

_LARGEST = 8 * 2**20  # a ConfigMap holds 1 MiB at most


@dataclass(frozen=True)
class Sections:
    """The parts of a configuration that concern agents, merged.

    Attributes:
        source: The file or folder.
        folder: Where relative paths start.
        blocks: Name of the plugin -> its block as plain data.
        task_plugins: `tasks.task-plugins`, as plain data.
    """

    source: str
    folder: Path
    blocks: Mapping[str, Any]
    task_plugins: Mapping[str, Any]


class _StrictLoader(yaml.SafeLoader):
    """YAML as usual, but a key written twice is an error instead of silently the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key_node.value!r} stands here twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _documents(text: str, source: str) -> list[Any]:
    try:
        # _StrictLoader is a SafeLoader.
        return [document for document in yaml.load_all(text, Loader=_StrictLoader) if document is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the document"
        raise SpecError([Problem(place, "", f"must be YAML: {error.problem}")], source=source) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = Problem("the document", "", f"must be YAML: {' '.join(str(error).split())}")
        raise SpecError([problem], source=source) from error


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is larger than 8 MiB", hint="is this the configuration?")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError([Problem("the file", "", "must be text in UTF-8")], source=str(path)) from error
    except OSError as error:
        raise UsageError(
            f"cannot read the configuration {path}: {error.strerror}", hint="name an existing file with --config"
        ) from error


def _expand(document: Any, source: str) -> Iterator[Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        return
    kind = document.get("kind")
    if kind == "List":
        for item in document.get("items") or []:
            yield from _expand(item, source)
    elif kind == "ConfigMap":
        for name, text in sorted((document.get("data") or {}).items()):
            # Other values of the ConfigMap need not be YAML at all.
            if isinstance(text, str) and any(word in text.lower() for word in (*BLOCKS, "task-plugins")):
                for inner in _documents(text, f"{source}, key {name}"):
                    yield from _expand(inner, source)
    else:
        yield document


def _get(mapping: Any, key: str) -> Any:
    """The value of a key, whatever its case: the propeller's keys are not case-sensitive."""
    if isinstance(mapping, Mapping):
        for name, value in mapping.items():
            if isinstance(name, str) and name.lower() == key.lower():
                return value
    return None


def _merge(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return below if above is None else above
    merged = dict(below)
    names = {name.lower(): name for name in merged if isinstance(name, str)}
    for name, value in above.items():
        known = names.get(name.lower(), name) if isinstance(name, str) else name
        merged[known] = _merge(merged.get(known), value)
    return merged


def files_of(path: Path) -> list[Path]:
    """The files that a configuration consists of, in the order in which they are merged.

    Args:
        path: A file, or a folder of `*.yaml` and `*.yml` (hidden ones, such as
            the `..data` of a mounted ConfigMap, are left out).
    """
    if not path.is_dir():
        return [path]
    return sorted(item for item in path.iterdir() if item.suffix in (".yaml", ".yml") and not item.name.startswith("."))


def read_sections(path: Path) -> Sections:
    """Read a configuration.

    Args:
        path: A YAML file (plain, or a ConfigMap, or a List of them), or a
            folder of YAML files.

    Raises:
        UsageError: It cannot be read.
        SpecError: It is not YAML.
    """
    files = files_of(path)
    blocks: dict[str, Any] = {}
    task_plugins: Any = None
    for file in files:
        for document in _documents(_read(file), str(file)):
            for part in _expand(document, str(file)):
                for name in BLOCKS:
                    for place in (_get(part, "plugins"), part):
                        found = _get(place, name)
                        if found is not None:
                            blocks[name] = _merge(blocks.get(name), found)
                task_plugins = _merge(task_plugins, _get(_get(part, "tasks"), "task-plugins"))
    return Sections(
        source=str(path),
        folder=path if path.is_dir() else path.parent,
        blocks=blocks,
        task_plugins=task_plugins if isinstance(task_plugins, Mapping) else {},
    )
