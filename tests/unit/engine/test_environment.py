"""The environment of the engine's processes: complete, and nothing that is not theirs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from provisioner.engine.environment import (
    Access,
    backend_url,
    file_backend,
    kubeconfig_variable,
    process_environment,
)
from provisioner.errors import UsageError
from provisioner.settings import Settings


def access(**changes: object) -> Access:
    values: dict[str, object] = {
        "home": Path("/home"),
        "backend": "file:///state",
        "passphrase": None,
        "passphrase_file": Path("/key"),
        "kubeconfig": None,
    }
    return Access(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "HTTPS_PROXY",
        "no_proxy",
        "SSL_CERT_FILE",
        "AWS_ACCESS_KEY_ID",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_STORAGE_ACCOUNT",
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "PULUMI_ACCESS_TOKEN",
    ],
)
def test_what_is_needed_passes(name: str) -> None:
    assert process_environment(access(), {name: "value"})[name] == "value"


@pytest.mark.parametrize(
    "name", ["PROVISIONER_PASSPHRASE", "PULUMI_PARALLEL", "PULUMI_SKIP_CHECKPOINTS", "DATABASE_URL", "FLYTE_SECRET"]
)
def test_what_is_not_theirs_stays_outside(name: str) -> None:
    assert name not in process_environment(access(), {name: "value"})


def test_a_users_own_pulumi_settings_do_not_win() -> None:
    inherited = {"PULUMI_BACKEND_URL": "s3://other", "PULUMI_HOME": "/other", "PULUMI_CONFIG_PASSPHRASE": "other"}
    environment = process_environment(access(), inherited)
    assert environment["PULUMI_BACKEND_URL"] == "file:///state?metadata=skip"
    assert environment["PULUMI_HOME"] == "/home"
    assert environment["PULUMI_CONFIG_PASSPHRASE_FILE"] == "/key"
    assert "PULUMI_CONFIG_PASSPHRASE" not in environment


def test_a_passphrase_of_the_settings_is_given_itself() -> None:
    environment = process_environment(access(passphrase="words"), {})
    assert environment["PULUMI_CONFIG_PASSPHRASE"] == "words"
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in environment


def test_access_does_not_show_the_passphrase() -> None:
    assert "words" not in repr(access(passphrase="words"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///var/state", "file:///var/state?metadata=skip"),
        ("file://~/state", "file://~/state?metadata=skip"),
        ("file:///a%20b", "file:///a%20b?metadata=skip"),
        ("file:///s?metadata=skip&x=1", "file:///s?metadata=skip&x=1"),
        ("file:///s?no_tmp_dir=true", "file:///s?no_tmp_dir=true&metadata=skip"),
        ("s3://bucket/prefix?region=eu-west-1", "s3://bucket/prefix?region=eu-west-1"),
        ("https://api.pulumi.com", "https://api.pulumi.com"),
    ],
)
def test_backend_url(url: str, expected: str) -> None:
    assert backend_url(url) == expected


def test_file_backend_is_resolved_as_the_engine_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.chdir(tmp_path)
    assert file_backend("file:///var/state?metadata=skip") == Path("/var/state")
    assert file_backend("file://~/state") == Path("/home/somebody/state")
    assert file_backend("file://state") == tmp_path / "state"
    assert file_backend("s3://bucket") is None


def test_a_context_is_chosen_without_copying_credentials(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("users: [{name: a, user: {token: verysecret}}]")
    settings = Settings(kubeconfig=kubeconfig, context="other: [context")
    value = kubeconfig_variable(settings, {}, tmp_path)
    assert value is not None
    chooser, _, original = value.partition(os.pathsep)
    assert original == str(kubeconfig)
    assert yaml.safe_load(Path(chooser).read_text())["current-context"] == "other: [context"
    assert "verysecret" not in Path(chooser).read_text()


def test_kubeconfig_without_a_context(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    assert kubeconfig_variable(Settings(kubeconfig=kubeconfig), {}, tmp_path) == str(kubeconfig)
    assert kubeconfig_variable(Settings(), {"KUBECONFIG": "/a:/b"}, tmp_path) == "/a:/b"
    # In a pod: the service account is found by the provider itself.
    assert kubeconfig_variable(Settings(), {}, tmp_path) is None


def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        kubeconfig_variable(Settings(kubeconfig=tmp_path / "nothing"), {}, tmp_path)
