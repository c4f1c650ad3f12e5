"""The log of a container as an iterator of lines, so that a long one is never held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import urllib3
from urllib3.exceptions import HTTPError

from provisioner.errors import TransientError


class LogLines:
    """Lines of a container's log, read as they are iterated; close it, or use it as a context manager.

    Args:
        response: The unread answer.
        where: What it is the log of, for errors.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, where: str) -> None:
        self._response = response
        self._where = where

    def __iter__(self) -> Iterator[str]:
        rest = b""
        try:
            for chunk in self._response.stream(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace")
        except HTTPError as error:
            raise TransientError(f"the log of {self._where} broke off: {error}", reason="Unreachable") from error
        finally:
            self.close()
        if rest:
            yield rest.decode(errors="replace")

    def close(self) -> None:
        """End the connection; what was not read is lost."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
