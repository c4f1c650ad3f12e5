"""Image names as a container runtime knows them.

The short forms that people write (`busybox`, `team/tool`) stand for full ones;
kubelet looks an image up by the full form, so an archive has to be imported
under it. The grammar is the distribution reference's.
"""

from __future__ import annotations

import re

from provisioner.errors import UsageError

_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:(?P<domain>(?:[a-zA-Z0-9][a-zA-Z0-9.-]*(?::[0-9]+)?))/)?(?P<path>{_PATH}(?:/{_PATH})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?"
)


def full_name(name: str) -> str:
    """The full form of an image's name.

    Args:
        name: As written, without a digest.

    Raises:
        UsageError: It is not an image's name.

    Example:
        >>> full_name("busybox")
        'docker.io/library/busybox:latest'
        >>> full_name("localhost/python:sandbox")
        'localhost/python:sandbox'
    """
    first, slash, _ = name.partition("/")
    # Only a first part with a dot or a port, or `localhost`, is a registry; any other belongs to the path.
    is_domain = bool(slash) and ("." in first or ":" in first or first == "localhost")
    matched = _NAME.fullmatch(name if is_domain else f"docker.io/{name if slash else f'library/{name}'}")
    if matched is None or len(name) > 255:
        raise UsageError(
            f"{name!r} is not an image name",
            reason="InvalidImageName",
            hint="use for example localhost/python:sandbox: lower case, at most one tag after ':', no digest",
        )
    return f"{matched['domain']}/{matched['path']}:{matched['tag'] or 'latest'}"
