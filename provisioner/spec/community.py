"""The fields of the community plugin `flytekitplugins-k8sdataservice`, read with equal effect.

A workflow written for it changes one import. Its names are PascalCase
(`Name`, `Image`, `Port`, ...), its resources are flytekit's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.errors import Problem, SpecError

_FIELDS = ("Name", "Requests", "Limits", "Port", "Image", "Command", "Replicas", "ExistingReleaseName", "Cluster")
# flytekit.Resources -> Kubernetes resource names.
_RESOURCES = {"cpu": "cpu", "mem": "memory", "gpu": "nvidia.com/gpu", "ephemeral_storage": "ephemeral-storage"}
# The plugin's own default when `Port` is not set.
_DEFAULT_PORT = 40000


def is_community(document: Mapping[str, Any]) -> bool:
    """Whether a `custom` document uses the community plugin's names."""
    return any(key in _FIELDS for key in document)


def _resources(document: Mapping[str, Any], field: str, problems: list[Problem]) -> dict[str, Any]:
    given = document.get(field) or {}
    if not isinstance(given, Mapping):
        problems.append(Problem(field, str(given), "flytekit Resources"))
        return {}
    result = {}
    for key, value in given.items():
        if key not in _RESOURCES:
            problems.append(Problem(f"{field}.{key}", "", f"unknown resource; known are {', '.join(_RESOURCES)}"))
        else:
            result[_RESOURCES[key]] = value
    return result


def from_community(document: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """Translate the plugin's fields into the document of a `ServiceConfig`.

    Args:
        document: The task's `custom`, nulls removed.
        source: Where it came from, for the error.

    Raises:
        SpecError: It mixes both ways of naming, or has unknown resources.
    """
    problems = [
        Problem(key, "", f"not one of the plugin's fields ({', '.join(_FIELDS)})")
        for key in document
        if key not in _FIELDS
    ]
    requests = _resources(document, "Requests", problems)
    limits = _resources(document, "Limits", problems)
    if problems:
        raise SpecError(problems, source=source)
    config: dict[str, Any] = {"name": document.get("Name"), "cluster": document.get("Cluster")}
    existing = document.get("ExistingReleaseName")
    if existing:
        # The plugin ignores the image and all else when it reuses a release.
        return {**config, "name": None, "existingReleaseName": existing}
    spec: dict[str, Any] = {"ports": [{"name": "main", "port": document.get("Port", _DEFAULT_PORT)}]}
    # An extended resource needs a limit equal to its request; the plugin's users set one of the two.
    for name, value in requests.items():
        if "/" in name:
            limits.setdefault(name, value)
    if requests or limits:
        spec["resources"] = {"requests": requests, "limits": limits}
    for key, field in (("Image", "image"), ("Command", "command"), ("Replicas", "replicas")):
        if key in document:
            spec[field] = document[key]
    return {**config, "spec": spec}
