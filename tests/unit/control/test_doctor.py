"""What the findings of `doctor` mean."""

import base64
import json
import os
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from pydantic import SecretStr

from provisioner.cluster import Permission
from provisioner.cluster.live import Server
from provisioner.control.doctor import Result, clock_check, permission_checks, secrets_check, version_check
from provisioner.control.passphrase_check import opens
from provisioner.engine.checkpoint import parse


def server(version: str = "v1.36.3", ahead: float = 0.0, took: float = 0.01) -> Server:
    return Server("https://api", version, ahead, took)


@pytest.mark.parametrize(
    ("version", "result"),
    [
        ("v1.36.3", Result.PASS),
        ("v1.28.0-gke.1", Result.PASS),
        ("v1.27.9", Result.FAIL),
        ("v2.0.0", Result.PASS),
        ("", Result.WARN),
        ("latest", Result.WARN),
    ],
)
def test_versions(version: str, result: Result):
    assert version_check(server(version)).result is result


@pytest.mark.parametrize(
    ("ahead", "took", "result"),
    [
        (0.4, 0.01, Result.PASS),
        (-4.9, 0.01, Result.PASS),
        (6.0, 0.01, Result.WARN),
        (-6.0, 2.0, Result.PASS),
        (-61.0, 0.01, Result.FAIL),
        (3600.0, 0.01, Result.FAIL),
    ],
)
def test_clocks(ahead: float, took: float, result: Result):
    found = clock_check(server(ahead=ahead, took=took))
    assert found.result is result
    assert ("ahead of" if ahead > 0 else "behind") in found.detail


def test_missing_permissions_are_named_by_resource_with_the_rule_that_grants_them():
    refused = [
        Permission("patch", "apps", "statefulsets"),
        Permission("get", "", "pods", "log", optional=True),
        Permission("delete", "apps", "statefulsets"),
        Permission("list", "", "namespaces", cluster_wide=True),
        Permission("update", "coordination.k8s.io", "leases", name="janitor"),
    ]
    needed, optional, cluster_wide, one = permission_checks("in team", "team", refused)
    assert [check.result for check in (needed, optional, cluster_wide, one)] == [
        Result.FAIL,
        Result.WARN,
        Result.FAIL,
        Result.FAIL,
    ]
    assert one.detail == "not allowed to update leases janitor of group coordination.k8s.io"
    assert one.fix.endswith('resourceNames: ["janitor"]')
    assert needed.detail == "not allowed to patch, delete statefulsets of group apps"
    rule = 'apiGroups: ["apps"], resources: ["statefulsets"], verbs: ["patch", "delete"]'
    assert needed.fix == f"grant in a Role of namespace team: {rule}"
    assert '"pods/log"' in optional.fix
    assert cluster_wide.fix.startswith("grant in a ClusterRole: ")
    (fine,) = permission_checks("in team", "team", [])
    assert fine.result is Result.PASS


def test_secrets_of_the_stacks():
    assert secrets_check("s", True).result is Result.PASS
    assert secrets_check("s", None).result is Result.PASS
    assert secrets_check("s", False).result is Result.FAIL


def checkpoint(provider: Any) -> Any:
    latest = {"resources": [], "secrets_providers": provider}
    return parse("s", json.dumps({"version": 3, "checkpoint": {"latest": latest}}).encode())


def salt(passphrase: str) -> str:
    """As Pulumi's passphrase secrets manager writes it."""
    random, nonce = os.urandom(8), os.urandom(12)
    key = PBKDF2HMAC(SHA256(), 32, random, 1_000_000).derive(passphrase.encode())
    parts = [base64.b64encode(part).decode() for part in (random, nonce, AESGCM(key).encrypt(nonce, b"pulumi", None))]
    return f"v1:{parts[0]}:v1:{parts[1]}:{parts[2]}"


def test_a_passphrase_opens_what_was_sealed_with_it_alone():
    sealed = checkpoint({"type": "passphrase", "state": {"salt": salt("right")}})
    assert opens(sealed, SecretStr("right")) is True
    assert opens(sealed, SecretStr("wrong")) is False


@pytest.mark.parametrize(
    ("provider", "found"),
    [
        (None, None),
        ({"type": "cloud", "state": {"url": "awskms://a"}}, None),
        ({"type": "passphrase", "state": {}}, None),
        ({"type": "passphrase", "state": {"salt": "v1:!:v1:!:!"}}, False),
    ],
)
def test_other_ways_to_keep_secrets(provider: Any, found: bool | None):
    assert opens(checkpoint(provider), SecretStr("any")) is found
