"""Loads the SDK of Flyte 2 beside flytekit.

Each registers the same metrics when its server is imported, so one process can hold just one of the two. A
deployment has a process for each; a run of the tests has one for all, and gives the second a registry of its own.
"""

import functools
from unittest import mock

import prometheus_client

_registry = prometheus_client.CollectorRegistry()
with (
    mock.patch.object(prometheus_client, "Counter", functools.partial(prometheus_client.Counter, registry=_registry)),
    mock.patch.object(prometheus_client, "Summary", functools.partial(prometheus_client.Summary, registry=_registry)),
):
    import flyte.connectors  # noqa: F401
