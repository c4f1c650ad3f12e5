"""Whether everything is there that the provisioner needs: one finding per question, each with its remedy.

Asking is separate from judging: what was found out is a value, and what it
means is a function of it.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from provisioner import toolchain
from provisioner.cluster import ClusterClient, Permission
from provisioner.cluster.live import LiveObjects, Server
from provisioner.control.passphrase_check import opens
from provisioner.engine import Engine
from provisioner.engine.location import locate
from provisioner.engine.store import Store
from provisioner.errors import ProvisionerError
from provisioner.passphrase import passphrase
from provisioner.settings import Settings

# A pod's ordinal as a label (DATA_SERVICE_REPLICA) and the retention of claims are on by default from here on.
_OLDEST = (1, 28)
_SKEW_WARNED, _SKEW_FAILED = 5.0, 60.0
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


class Result(StrEnum):
    """What a check found."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: What was looked at.
        result: What was found.
        detail: In one sentence.
        fix: What to do about it, or "".
    """

    name: str
    result: Result
    detail: str
    fix: str = ""


def examine(settings: Settings, namespaces: Sequence[str]) -> Iterator[Check]:
    """Look at everything; each finding comes as soon as it is known.

    Args:
        settings: What is set.
        namespaces: Where services shall run.
    """
    yield from _binaries()
    yield _passphrase(settings)
    yield from _backend(settings)
    yield from _cluster(settings, namespaces)


def failed(name: str, error: ProvisionerError) -> Check:
    """The finding that something cannot be done, with the error's own hint.

    Args:
        name: What was looked at.
        error: What came of it.
    """
    return Check(name, Result.FAIL, error.message, error.hint)


def _binaries() -> Iterator[Check]:
    for state in toolchain.status((toolchain.Group.ENGINE,)):
        name = state.pin.name
        if state.binary is not None:
            yield Check(name, Result.PASS, f"{state.binary.version} at {state.binary.path}")
            continue
        detail = state.detail or "missing"
        # The inline programs of services need no language host; plain `pulumi` does.
        result = Result.WARN if name.startswith("pulumi-language-") else Result.FAIL
        yield Check(name, result, detail, "run `provisioner toolchain install --group engine`")


def _passphrase(settings: Settings) -> Check:
    name = "passphrase"
    if settings.passphrase is not None:
        return Check(name, Result.PASS, "from PROVISIONER_PASSPHRASE")
    path = settings.passphrase_file
    try:
        passphrase(settings)
    except ProvisionerError as error:
        return failed(name, error)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return Check(name, Result.WARN, f"{path} can be read by others (mode {mode:04o})", f"chmod 600 {path}")
    return Check(name, Result.PASS, f"in {path}")


def _backend(settings: Settings) -> Iterator[Check]:
    name = "state backend"
    engine = Engine(settings)
    try:
        location = locate(settings.backend)
        if location is None:
            count = sum(1 for _ in engine.state.stacks())
            yield Check(name, Result.PASS, f"{settings.backend} answers; {count} stacks")
            return
        store, probe = Store(location), f".provisioner-doctor-{uuid.uuid4()}"
        store.write(probe, b"written by provisioner doctor")
        store.delete(probe)
        stacks = sorted(engine.state.entries(), key=lambda entry: str(entry.modified), reverse=True)
        yield Check(name, Result.PASS, f"{settings.backend} can be written; {len(stacks)} stacks")
        checkpoint = engine.state.checkpoint(stacks[0].name) if stacks else None
        if checkpoint is not None:
            yield secrets_check(checkpoint.stack, opens(checkpoint, passphrase(settings)))
    except ProvisionerError as error:
        yield failed(name, error)


def secrets_check(stack: str, opened: bool | None) -> Check:
    """What it means whether the passphrase opens the secrets of a stack.

    Args:
        stack: Which was tried.
        opened: Whether it does; None when another provider keeps them.
    """
    name = "stacks' secrets"
    if opened is None:
        return Check(name, Result.PASS, f"those of {stack} are kept by another provider than a passphrase")
    if opened:
        return Check(name, Result.PASS, f"the passphrase opens those of {stack}")
    fix = "set PROVISIONER_PASSPHRASE or PROVISIONER_PASSPHRASE_FILE to the one with which the stacks were made"
    return Check(name, Result.FAIL, f"the passphrase does not open those of {stack}", fix)


def _cluster(settings: Settings, namespaces: Sequence[str]) -> Iterator[Check]:
    client = ClusterClient(settings)
    live = LiveObjects(client.transport)
    try:
        server = live.server()
    except ProvisionerError as error:
        yield failed("cluster", error)
        return
    yield Check("cluster", Result.PASS, f"{server.host} answers in {server.took * 1000:.0f} ms")
    yield version_check(server)
    yield clock_check(server)
    yield _storage(live)
    for namespace in namespaces:
        yield from _namespace(client, namespace)


def version_check(server: Server) -> Check:
    """Whether the API server is new enough.

    Args:
        server: What it says of itself.
    """
    name = "server version"
    match = _VERSION.match(server.version)
    if match is None:
        return Check(name, Result.WARN, f"{server.version!r} is not understood")
    if (int(match[1]), int(match[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        return Check(name, Result.FAIL, f"{server.version} is older than {oldest}", f"upgrade the cluster to {oldest}")
    return Check(name, Result.PASS, server.version)


def clock_check(server: Server) -> Check:
    """Whether deadlines mean the same here and there.

    Args:
        server: With the difference of the clocks.
    """
    name, skew = "clock", abs(server.ahead)
    where = "ahead of" if server.ahead > 0 else "behind"
    detail = f"the API server's is {skew:.1f} s {where} this machine's"
    # The answer counts whole seconds, and was on its way for some time.
    if skew <= _SKEW_WARNED + server.took:
        return Check(name, Result.PASS, detail)
    result = Result.FAIL if skew > _SKEW_FAILED + server.took else Result.WARN
    return Check(name, result, detail, "synchronize both clocks (NTP)")


def _storage(live: LiveObjects) -> Check:
    name = "storage class"
    try:
        default = live.default_storage_class()
    except ProvisionerError as error:
        return Check(name, Result.WARN, error.message, error.hint)
    if default is None:
        fix = "mark one as the default, or name one in each claim (storageClass)"
        return Check(name, Result.WARN, "the cluster has no default StorageClass", fix)
    return Check(name, Result.PASS, f"the default is {default}")


def _namespace(client: ClusterClient, namespace: str) -> Iterator[Check]:
    name = f"namespace {namespace}"
    try:
        if not client.namespace_exists(namespace):
            yield Check(
                name, Result.FAIL, "does not exist, or is being deleted", f"kubectl create namespace {namespace}"
            )
            return
    except ProvisionerError as error:
        # Not to be allowed to look is no reason to expect that it is missing.
        yield Check(name, Result.WARN, error.message, error.hint)
    try:
        yield from permission_checks(f"in {namespace}", namespace, client.permissions(namespace))
    except ProvisionerError as error:
        yield failed(f"permissions in {namespace}", error)


def permission_checks(whose: str, namespace: str, refused: Sequence[Permission]) -> Iterator[Check]:
    """What it means that some permissions are missing.

    Args:
        whose: What needs them, or where.
        namespace: Where.
        refused: Those.
    """
    name = f"permissions {whose}"
    by_resource: defaultdict[Permission, list[str]] = defaultdict(list)
    for permission in refused:
        by_resource[replace(permission, verb="")].append(permission.verb)
    for permission, verbs in by_resource.items():
        what = permission.resource + (f"/{permission.subresource}" if permission.subresource else "")
        where = "in a ClusterRole" if permission.cluster_wide else f"in a Role of namespace {namespace}"
        listed = ", ".join(f'"{verb}"' for verb in verbs)
        fix = f'grant {where}: apiGroups: ["{permission.group}"], resources: ["{what}"], verbs: [{listed}]'
        if permission.name:
            fix += f', resourceNames: ["{permission.name}"]'
        loss = "; only detail is lost" if permission.optional else ""
        result = Result.WARN if permission.optional else Result.FAIL
        yield Check(name, result, f"not allowed to {replace(permission, verb=', '.join(verbs))}{loss}", fix)
    if not refused:
        yield Check(name, Result.PASS, "all that is needed is granted")
