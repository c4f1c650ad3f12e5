"""What can be counted about the conversation with the API server.

In the registry that `provisioner serve` publishes, so that a fleet's operator
sees a watch that keeps breaking before a user does.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge

REQUESTS = Counter(
    "provisioner_cluster_requests",
    "Calls to the API server, by verb, resource and HTTP status (or `error`: no answer)",
    ["verb", "resource", "code"],
)
WATCH_RESTARTS = Counter(
    "provisioner_watch_restarts",
    "Watches that ended before their time, by resource and cause",
    ["resource", "cause"],
)
WATCH_LISTS = Counter("provisioner_watch_lists", "Full listings by the shared watch, by resource", ["resource"])
CACHED_OBJECTS = Gauge("provisioner_watch_objects", "Objects in the shared cache, by kind", ["kind"])
