"""How a long-running process writes its log: one line per event, with fields that can be searched.

For people on a terminal, as JSON otherwise; to stderr, so that stdout carries
results alone. What libraries log through `logging` comes out the same way.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor

from provisioner.settings import Settings


def configure(settings: Settings, *, level: str | None = None) -> None:
    """Set up logging for this process.

    Args:
        settings: Format and least level.
        level: Least level instead of the setting's.
    """
    console = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    rendered: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if console:
        rendered.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
    else:
        rendered += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=rendered))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("provisioner").setLevel((level or settings.log_level).upper())
    # flytekit isolates its logger; its errors belong into this log as well.
    flytekit = logging.getLogger("flytekit")
    flytekit.handlers.clear()
    flytekit.propagate = True


def configure_as_guest(settings: Settings) -> None:
    """Set up logging in a process that is not ours, such as `pyflyte run`.

    Nothing is touched if somebody configured structlog before. Only warnings
    are shown unless a level was set on purpose.

    Args:
        settings: Format and least level.
    """
    if structlog.is_configured():
        return
    level = settings.log_level if "log_level" in settings.model_fields_set else "warning"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
