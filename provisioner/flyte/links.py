"""Links to where the logs of a service are kept, from the templates of the server's settings.

The placeholders are those of Flyte's own log plugins, as far as they make
sense here, so that one template serves both.
"""

from __future__ import annotations

from collections.abc import Mapping

from flyteidl.core.execution_pb2 import TaskLog

from provisioner.identity import FLYTE2, Identity
from provisioner.settings import LINK_OF_REPLICA, LINK_PLACEHOLDER

# The console lists each link: beyond some, one template for the whole service is the better choice.
_MOST_REPLICAS = 16


def log_links(templates: Mapping[str, str], identity: Identity, replicas: int) -> list[TaskLog]:
    """The links of one service: one for each template, and each replica where the template names a pod.

    Args:
        templates: Title -> address with placeholders.
        identity: The service.
        replicas: How many it has.

    Example:
        >>> who = Identity("p", "d", "ns", "graph", "graph", "e1")
        >>> [link.uri for link in log_links({"Logs": "https://logs/{{ .namespace }}/{{ .podName }}"}, who, 2)]
        ['https://logs/ns/graph-0', 'https://logs/ns/graph-1']
    """
    values = {
        "namespace": identity.namespace,
        "service": identity.service,
        "stack": identity.stack,
        "executionProject": identity.project,
        "executionDomain": identity.domain,
        "executionName": identity.owner.removeprefix(FLYTE2),
    }
    links = []
    for title, template in templates.items():
        if not any(match[1] == LINK_OF_REPLICA for match in LINK_PLACEHOLDER.finditer(template)):
            links.append(_link(title, template, values))
            continue
        for ordinal in range(min(replicas, _MOST_REPLICAS)):
            pod = f"{identity.service}-{ordinal}"
            links.append(_link(f"{title} ({pod})", template, {**values, LINK_OF_REPLICA: pod}))
    return links


def _link(title: str, template: str, values: Mapping[str, str]) -> TaskLog:
    uri = LINK_PLACEHOLDER.sub(lambda match: values[match[1]], template)
    return TaskLog(name=title, uri=uri, message_format=TaskLog.UNKNOWN, ShowWhilePending=True)
