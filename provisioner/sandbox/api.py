"""The few calls that the sandbox makes to its own API server, over nothing but the standard library.

A sandbox is started by people who wait for it; the Kubernetes client takes
longer to import than all of these calls together.
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.errors import PermanentError, TransientError

_MANAGER = "provisioner-sandbox"


@dataclass(frozen=True)
class Response:
    """An answer.

    Attributes:
        status: The HTTP status.
        text: The body.
    """

    status: int
    text: str

    def json(self) -> Any:
        """The body as plain data."""
        return json.loads(self.text)


def get(port: int, path: str, context: ssl.SSLContext | None, headers: dict[str, str] | None = None) -> Response | None:
    """One GET of a server on loopback; None when it does not answer.

    Args:
        port: Its TCP port.
        path: What is asked for.
        context: How its certificate is checked; None for plain HTTP.
        headers: Further headers.
    """
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=3, context=context)
        if context
        else http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    )
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return Response(answer.status, answer.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Api:
    """The sandbox's API server, as its administrator.

    Args:
        port: Its port on loopback.
        ca: The file of the authority that vouches for it.
        token: The administrator's token.
    """

    def __init__(self, port: int, ca: Path, token: str) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(ca))
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def get(self, path: str) -> Response | None:
        """One GET; None when the server does not answer."""
        return get(self._port, path, self._context, self._headers)

    def _call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Response:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._context)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, self._headers | {"Content-Type": kind})
            answer = connection.getresponse()
            response = Response(answer.status, answer.read().decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"the sandbox's API server does not answer: {error}", reason="ApiDown") from error
        finally:
            connection.close()
        if response.status >= 400 and response.status != 404:
            raise PermanentError(
                f"{method} {path} was refused with {response.status}: {response.text[:300]}", reason="ApiRefused"
            )
        return response

    def apply(self, path: str, value: dict[str, Any]) -> None:
        """Make an object as it is given here (server-side apply).

        Args:
            path: The object's own path.
            value: The object.
        """
        self._call("PATCH", f"{path}?fieldManager={_MANAGER}&force=true", value, "application/apply-patch+yaml")

    def patch(self, path: str, value: dict[str, Any]) -> None:
        """Change some fields of an object (JSON merge patch); nothing when it does not exist."""
        self._call("PATCH", path, value, "application/merge-patch+json")

    def list(self, path: str) -> list[dict[str, Any]]:
        """The items of a collection."""
        items: list[dict[str, Any]] = self._call("GET", path).json().get("items") or []
        return items

    def delete(self, path: str, *, grace: int | None = None) -> None:
        """Delete an object, if it exists.

        Args:
            path: Its own path.
            grace: Seconds; None for the object's default.
        """
        self._call("DELETE", path, None if grace is None else {"gracePeriodSeconds": grace})
