"""Traces of calls and operations by OpenTelemetry, where somebody has asked for them.

Asked for by the standard variables: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._TRACES_ENDPOINT`), or
`OTEL_TRACES_EXPORTER=otlp`. Without them nothing is imported and nothing is done. Sampling, headers, certificates
and the names of resources are the SDK's business, by its own variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from provisioner.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

SERVICE = "data-service-provisioner"
EXECUTION, PROJECT, DOMAIN, STACK = "flyte.execution", "flyte.project", "flyte.domain", "pulumi.stack"
"""Attributes of spans: whose service it is, and its stack."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("grpc", "http/protobuf")

_provider: TracerProvider | None = None
# What a span tells of itself, its inner ones tell as well.
_inherited: ContextVar[Mapping[str, str]] = ContextVar("_inherited", default=MappingProxyType({}))


class Span:
    """A span that runs, or nothing in its place.

    Args:
        inner: OpenTelemetry's own; None where nobody traces.
    """

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner

    def tell(self, **attributes: str) -> None:
        """Add what has become known.

        Args:
            attributes: `execution`, `project`, `domain`, `stack` by these names, anything else by its own.
        """
        if self._inner is not None:
            self._inner.set_attributes(_named(attributes))

    def fail(self, reason: str, message: str) -> None:
        """Say that what it stands for has failed.

        Args:
            reason: CamelCase code.
            message: What is wrong.
        """
        if self._inner is not None:
            from opentelemetry.trace import Status, StatusCode

            self._inner.set_attribute("error.type", reason)
            self._inner.set_status(Status(StatusCode.ERROR, message))


NOTHING = Span()
"""The span where nobody traces."""
_NAMES = {"execution": EXECUTION, "project": PROJECT, "domain": DOMAIN, "stack": STACK}


def _named(attributes: Mapping[str, str]) -> dict[str, str]:
    return {_NAMES.get(name, name): value for name, value in attributes.items() if value}


def wanted(environment: Mapping[str, str]) -> str:
    """The variable that asks for traces, or "".

    Args:
        environment: Variables.

    Example:
        >>> wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"})
        'OTEL_EXPORTER_OTLP_ENDPOINT'
        >>> wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_TRACES_EXPORTER": "none"})
        ''
    """
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter not in ("", "otlp"):
        return ""
    if exporter:
        return "OTEL_TRACES_EXPORTER"
    return next((name for name in _ENDPOINTS if environment.get(name, "").strip()), "")


def start(environment: Mapping[str, str] = os.environ) -> None:
    """Trace from now on, if the environment asks for it.

    Args:
        environment: Variables; the SDK reads those of the process all the same.

    Raises:
        UsageError: It asks for it, and OpenTelemetry is not installed; or by
            a protocol that there is not.
    """
    global _provider
    variable = wanted(environment)
    if not variable or _provider is not None:
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _exporter(environment)
    except ImportError as error:
        raise UsageError(
            f"{variable} asks for traces, and OpenTelemetry is not installed ({error.name} is missing)",
            reason="TracingNotInstalled",
            hint=f"pip install '{SERVICE}[otel]', or unset {variable}",
        ) from error
    named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    _provider = TracerProvider(resource=Resource.create({} if named else {"service.name": SERVICE}))
    _provider.add_span_processor(BatchSpanProcessor(exporter))


def _exporter(environment: Mapping[str, str]) -> SpanExporter:
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environment[name] for name in names if environment.get(name)), _PROTOCOLS[0])
    if protocol == _PROTOCOLS[0]:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc()
    if protocol == _PROTOCOLS[1]:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        return Http()
    raise UsageError(
        f"OTEL_EXPORTER_OTLP_PROTOCOL {protocol!r} is not known", hint=f"accepted: {', '.join(_PROTOCOLS)}"
    )


def enabled() -> bool:
    """Whether anybody traces; for callers to whom the attributes of a span are work."""
    return _provider is not None


def stop() -> None:
    """Send what was traced, and trace no more."""
    global _provider
    provider, _provider = _provider, None
    if provider is not None:
        provider.shutdown()


@contextmanager
def span(name: str, parent: Mapping[str, str] | None = None, **attributes: str) -> Iterator[Span]:
    """A span around a block; costs nothing where nobody traces.

    Args:
        name: What is done.
        parent: Headers of a call from outside, which may say of what trace it is; its span is a server's then.
        attributes: As of `Span.tell`; spans inside of it have them too.

    Yields:
        It.

    Example:
        >>> with span("apply", stack="store-1") as traced:
        ...     traced.tell(outcome="done")
    """
    if _provider is None:
        yield NOTHING
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    told = {**_inherited.get(), **_named(attributes)}
    token = _inherited.set(told)
    context = TraceContextTextMapPropagator().extract(dict(parent)) if parent is not None else None
    kind = SpanKind.SERVER if parent is not None else SpanKind.INTERNAL
    try:
        tracer = _provider.get_tracer(SERVICE)
        with tracer.start_as_current_span(name, context=context, kind=kind, attributes=told) as inner:
            yield Span(inner)
    finally:
        _inherited.reset(token)
