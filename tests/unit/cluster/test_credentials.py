"""Where the cluster is found, and what is said when it is not."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import yaml

from provisioner.cluster import credentials
from provisioner.cluster.credentials import Credentials
from provisioner.errors import TransientError, UsageError
from provisioner.settings import Settings


def kubeconfig(path: Path, *, server: str = "https://127.0.0.1:1", user: dict[str, object] | None = None) -> Path:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("first", "second")]
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": user or {"token": "s3cr3t"}}],
        "contexts": contexts,
        "current-context": "first",
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_the_settings_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "env", server="https://127.0.0.1:2")))
    ours = kubeconfig(tmp_path / "ours", server="https://127.0.0.1:1/")
    connection = Credentials(Settings(kubeconfig=ours)).current()
    assert connection.host == "https://127.0.0.1:1"
    assert connection.headers() == {"Authorization": "Bearer s3cr3t"}
    assert Credentials(Settings()).current().host == "https://127.0.0.1:2"


def test_of_several_files_in_kubeconfig_those_that_exist_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{kubeconfig(tmp_path / 'there')}")
    assert Credentials(Settings(context="second")).current().host == "https://127.0.0.1:1"


def test_the_home_folder_comes_last(tmp_path: Path) -> None:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    kubeconfig(tmp_path / "home" / ".kube" / "config", server="https://127.0.0.1:3")
    assert Credentials(Settings()).current().host == "https://127.0.0.1:3"


def test_without_any_cluster_the_way_out_is_named() -> None:
    with pytest.raises(UsageError, match="no cluster is configured") as caught:
        Credentials(Settings()).current()
    assert "PROVISIONER_KUBECONFIG" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "file is empty"),
        ("{", "while parsing"),
        ("[]", "kubeconfig cannot be used"),
        ("current-context: nope", "kubeconfig cannot be used"),
        ("\x00\x01", "kubeconfig cannot be used"),
    ],
)
def test_a_broken_kubeconfig_is_a_clear_error(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(UsageError, match=said):
        Credentials(Settings(kubeconfig=path)).current()


def test_a_context_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="third"):
        Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config"), context="third")).current()


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent does not exist"):
        Credentials(Settings(kubeconfig=tmp_path / "absent")).current()


def test_a_certificate_that_is_none_is_a_clear_error(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    config = kubeconfig(tmp_path / "config", user={"client-certificate": str(junk), "client-key": str(junk)})
    with pytest.raises(UsageError, match="certificates in the kubeconfig"):
        Credentials(Settings(kubeconfig=config)).current()


def test_a_credential_plugin_gives_the_token_and_runs_again_when_it_is_refused(tmp_path: Path) -> None:
    plugin, count = tmp_path / "plugin", tmp_path / "count"
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo x >> {count}\n"
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"token-%s"}}}}\' $(wc -l < {count})\n'
    )
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    found = Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", user=user)))
    first = found.current()
    assert first.headers() == {"Authorization": "Bearer token-1"}
    assert found.current() is first
    second = found.renew(first)
    assert second.headers() == {"Authorization": "Bearer token-2"}
    # Another thread that was refused with the old one does not run it once more.
    assert found.renew(first) is second


def test_a_token_file_is_read_again_when_it_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    found = Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", user={"tokenFile": str(token)})))
    first = found.current()
    token.write_text("new")
    assert found.renew(first).headers() == {"Authorization": "Bearer new"}


def test_a_plugin_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\nread line < {fifo}\n")
    plugin.chmod(0o755)
    os.mkfifo(fifo)
    monkeypatch.setattr(credentials, "LOAD_SECONDS", 0.2)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    with pytest.raises(TransientError, match="credential") as caught:
        Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", user=user))).current()
    assert caught.value.reason == "CredentialsTimeout"
    fifo.open("w").close()  # let the plugin end
    for thread in threading.enumerate():
        if thread.name == "cluster-credentials":
            thread.join(10)


def test_a_proxy_is_not_asked_for_what_is_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    near = Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "near"))).current()
    far = Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "far", server="https://10.1.2.3:1"))).current()
    assert near.pool.proxy is None
    assert far.pool.proxy is not None


def test_in_a_pod_its_service_account_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UsageError, match="Service token file does not exist"):
        Credentials(Settings()).current()
    with pytest.raises(UsageError, match="context 'x' was asked for"):
        Credentials(Settings(context="x")).current()
