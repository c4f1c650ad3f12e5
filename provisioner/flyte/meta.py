"""The resource meta: all that Flyte keeps for us between two calls.

It is stored inside the workflow object, so it is small; it is read by the
version of the server that answers the next poll, so it says its own version;
and it is the only memory that survives a crash, so it holds the whole request.

The form is compact JSON, `{"v":1,...}` with exactly one of `request`,
`attached`, `cleanup` and `rejected`; above 1 KiB it is deflated (zlib), which cannot be
mistaken, since JSON begins with a brace. A field that an older server may do
without is added to the same version; one that it must not overlook makes a new
one, and the older server then waits.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from flytekit.extend.backend.base_connector import ResourceMeta

from provisioner.control.request import ServiceRequest
from provisioner.errors import PermanentError, ProvisionerError
from provisioner.identity import User

VERSION = 1
USUAL_BYTES = 1024
# Flyte's workflow object lives in etcd, with all its nodes in at most 1.5 MiB.
MAX_BYTES = 8 * 1024


@dataclass(frozen=True)
class Wanted:
    """A service that this task created.

    Attributes:
        request: All that control needs.
        outputs: Names of the outputs that the task declares.
        earlier: Names of the services that earlier attempts may have left.
        user: Who uses it, if it is shared.
    """

    request: ServiceRequest
    outputs: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    user: User | None = None


@dataclass(frozen=True)
class Attached:
    """A service that somebody else created: it is waited for, and never changed.

    Attributes:
        namespace: Its namespace.
        service: Name of its StatefulSet and Service.
        outputs: Names of the outputs that the task declares.
        user: Who uses it; None in a local run, which holds nothing.
    """

    namespace: str
    service: str
    outputs: tuple[str, ...]
    user: User | None = None


@dataclass(frozen=True)
class Cleanup:
    """The end of a use of a service.

    Attributes:
        namespace: Its namespace.
        service: Its name; "" when nothing is to be done.
        user: Whose use ends.
        job: `KIND/NAME` of a job that must have ended first, or "".
    """

    namespace: str
    service: str
    user: User
    job: str = ""


@dataclass(frozen=True)
class Rejected:
    """A request that can never succeed, kept until Flyte asks how it went.

    Attributes:
        reason: CamelCase code.
        message: What is wrong with it.
        hint: The next step, or "".
    """

    reason: str
    message: str
    hint: str


@dataclass(frozen=True)
class Unreadable:
    """Something that this version cannot read.

    Attributes:
        message: What it is.
        newer: Whether a newer version wrote it, so that another server may read it.
        raw: The bytes as they came.
    """

    message: str
    newer: bool
    raw: bytes


Content = Wanted | Attached | Cleanup | Rejected | Unreadable


@dataclass
class DataServiceMeta(ResourceMeta):  # type: ignore[misc]
    """What CreateTask answers, and GetTask and DeleteTask get back.

    Attributes:
        content: One of five things it can say.
    """

    content: Content

    def encode(self) -> bytes:
        """As bytes.

        Raises:
            PermanentError: They would be too many for Flyte's workflow object.
        """
        content = self.content
        if isinstance(content, Unreadable):
            return content.raw
        document: dict[str, Any] = {"v": VERSION}
        if isinstance(content, Wanted):
            document |= {"request": content.request.document(), "outputs": list(content.outputs)}
            if content.earlier:
                document["earlier"] = list(content.earlier)
            if content.user is not None:
                document["user"] = asdict(content.user)
        elif isinstance(content, Attached):
            document |= {"attached": asdict(content)}
        elif isinstance(content, Cleanup):
            document |= {"cleanup": asdict(content)}
        else:
            document |= {"rejected": asdict(content)}
        data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        if len(data) > USUAL_BYTES:
            data = zlib.compress(data)
        if len(data) > MAX_BYTES:
            raise PermanentError(
                f"the request takes {len(data)} bytes even when deflated, and Flyte's workflow object has room for "
                f"{MAX_BYTES}",
                reason="SpecTooLarge",
                hint="keep large values in a ConfigMap, a Secret or the image, and name them in the specification",
            )
        return data

    @classmethod
    def decode(cls, data: bytes) -> DataServiceMeta:
        """Read what any version wrote; never raises, since an error here would count against the task."""
        return cls(_read(data))


# Each poll of a task brings the same bytes, and to check a specification takes longer than all else in a poll.
@lru_cache(maxsize=4096)
def _read(data: bytes) -> Content:
    try:
        document = json.loads(data if data.startswith(b"{") else _inflate(data))
        version = int(document["v"])
        if version > VERSION:
            message = f"resource meta of version {version}; this server reads up to version {VERSION}"
            return Unreadable(message, newer=True, raw=data)
        return _content(document)
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, RecursionError, ProvisionerError) as error:
        message = f"resource meta that this connector did not write ({len(data)} bytes, {type(error).__name__})"
        return Unreadable(message, newer=False, raw=data)


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, 64 * MAX_BYTES)
    if not inflater.eof:
        raise ValueError("not a complete deflated document of a possible size")
    return text


def _user(document: dict[str, Any]) -> User | None:
    given = document.get("user")
    if given is None:
        return None
    return User(**{field.name: str(given[field.name]) for field in fields(User)})


def _content(document: dict[str, Any]) -> Content:
    if "request" in document:
        outputs, earlier = (tuple(map(str, document.get(key, ()))) for key in ("outputs", "earlier"))
        return Wanted(ServiceRequest.from_document(document["request"]), outputs, earlier, _user(document))
    if "attached" in document:
        attached = document["attached"]
        outputs = tuple(str(name) for name in attached["outputs"])
        return Attached(str(attached["namespace"]), str(attached["service"]), outputs, _user(attached))
    if "cleanup" in document:
        cleanup, user = document["cleanup"], _user(document["cleanup"])
        if user is None:
            raise ValueError("a cleanup of nobody")
        return Cleanup(str(cleanup["namespace"]), str(cleanup["service"]), user, str(cleanup["job"]))
    rejected = document["rejected"]
    return Rejected(str(rejected["reason"]), str(rejected["message"]), str(rejected["hint"]))
