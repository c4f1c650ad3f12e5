"""Where the cluster is found, and what is said when it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from provisioner.cluster import credentials
from provisioner.cluster.credentials import Credentials
from provisioner.cluster.kubeconfig import find_access
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
        ("", "it is empty"),
        ("users: [{name: u, user: {token: s3cr3t}}\n", "not YAML in line 2"),
        ("[]", "a mapping is needed"),
        ("\x00\x01", "not a text in YAML"),
        ("contexts: []", "no current-context"),
        ("current-context: nope", "there is no context 'nope'; known: none"),
        ("current-context: a\ncontexts: 3", "contexts in .*: a list of mappings"),
        ("current-context: [a]", "current-context in .*: a text is needed"),
    ],
)
def test_a_broken_kubeconfig_is_a_clear_error_without_its_secrets(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(UsageError, match=said) as caught:
        Credentials(Settings(kubeconfig=path)).current()
    assert str(path) in caught.value.message
    assert "s3cr3t" not in caught.value.message


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("cluster", {"server": "api.example.com"}, "an https:// address is needed"),
        ("cluster", {"certificate-authority-data": "***"}, "it is not base64"),
        ("cluster", {"certificate-authority": "absent.pem"}, "absent.pem: No such file"),
        ("cluster", {"insecure-skip-tls-verify": "yes"}, "true or false is needed"),
        ("cluster", {"proxy-url": "socks5://127.0.0.1:1"}, "only http:// and https:// are known"),
        ("user", {"token": 12}, "users.u..user.token in .*: a text is needed"),
        ("user", {"auth-provider": {"name": "gcp"}}, "use an exec plugin"),
        ("user", {"exec": {"args": ["x"]}}, "a command and a list of args"),
        ("user", {"exec": {"command": "/absent/plugin"}}, "cannot be run"),
        ("user", {"as-groups": ["a", "b"]}, "at most one group"),
        ("user", {"as-user-extra": {"a": ["b"]}}, "not supported"),
        ("context", {"user": "nobody"}, "there is no user 'nobody'; known: u"),
        ("context", {"cluster": "nowhere"}, "there is no cluster 'nowhere'; known: c"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(tmp_path: Path, part: str, values: dict[str, object], said: str) -> None:
    path = kubeconfig(tmp_path / "config")
    document = yaml.safe_load(path.read_text())
    for entry in document[f"{part}s"]:
        entry[part] |= values
    if "exec" in values:
        del document["users"][0]["user"]["token"]
    path.write_text(yaml.safe_dump(document))
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
    with pytest.raises(UsageError, match=r"certificates for https://127.0.0.1:1"):
        Credentials(Settings(kubeconfig=config)).current()


def test_a_credential_plugin_gives_the_token_and_runs_again_when_it_is_refused(tmp_path: Path) -> None:
    program, count = tmp_path / "program", tmp_path / "count"
    program.write_text(
        "#!/bin/sh\n"
        f"echo x >> {count}\n"
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"token-%s"}}}}\' $(wc -l < {count})\n'
    )
    program.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
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


def test_a_token_file_is_read_again_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    user = {"tokenFile": "token", "token": "kubectl prefers the file"}
    connection = Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", user=user))).current()
    assert connection.headers() == {"Authorization": "Bearer old"}
    token.write_text("new\n")
    assert connection.headers() == {"Authorization": "Bearer old"}
    monkeypatch.setattr(credentials, "TOKEN_FILE_SECONDS", 0.0)
    assert connection.headers() == {"Authorization": "Bearer new"}
    token.unlink()
    with pytest.raises(TransientError, match="cannot be read"):
        connection.headers()


def plugin(folder: Path, script: str) -> dict[str, object]:
    program = folder / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    # Relative to the kubeconfig, as kubectl has it.
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}


def test_a_plugin_that_hangs_is_given_up_with_all_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"echo $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/pid; cat {fifo}"
    config = kubeconfig(tmp_path / "config", user=plugin(tmp_path, script))
    seconds = 0.3
    # With ever more time, until it had begun when it was given up.
    while not (tmp_path / "pid").exists():
        monkeypatch.setattr(credentials, "PLUGIN_SECONDS", seconds)
        with pytest.raises(TransientError, match="took more than") as caught:
            Credentials(Settings(kubeconfig=config)).current()
        assert caught.value.reason == "CredentialPluginTimeout"
        seconds *= 3
    group = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    # A grandchild is gone once process 1 has taken note of its end.
    while running(group):
        assert time.monotonic() < deadline, f"processes of group {group} still run"
        time.sleep(0.01)


def running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo please log in >&2; exit 3", "exit code 3: please log in"),
        ("echo hello", "neither a token nor a certificate"),
        ("echo '{}'", "neither a token nor a certificate"),
    ],
)
def test_a_plugin_that_fails_is_no_reason_to_go_on_without_credentials(tmp_path: Path, script: str, said: str) -> None:
    config = kubeconfig(tmp_path / "config", user=plugin(tmp_path, script))
    with pytest.raises(TransientError, match=said):
        Credentials(Settings(kubeconfig=config)).current()


def test_a_plugin_is_told_of_the_cluster_if_it_asks(tmp_path: Path) -> None:
    user = plugin(tmp_path, f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo \'{{"status":{{"token":"t"}}}}\'')
    user["exec"] |= {"provideClusterInfo": True, "env": [{"name": "A", "value": "b"}]}  # type: ignore[operator]
    Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", user=user))).current()
    told = json.loads((tmp_path / "info").read_text())
    assert told["kind"] == "ExecCredential"
    assert told["spec"]["interactive"] is False
    assert told["spec"]["cluster"]["server"] == "https://127.0.0.1:1"


def test_of_several_files_the_first_that_sets_a_value_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kubeconfig(tmp_path / "one", server="https://127.0.0.1:1")
    two = kubeconfig(tmp_path / "two", server="https://127.0.0.1:2", user={"token": "other"})
    monkeypatch.setenv("KUBECONFIG", f"{one}:{two}")
    assert Credentials(Settings()).current().host == "https://127.0.0.1:1"


def test_whom_we_act_as_goes_along(tmp_path: Path) -> None:
    user = {"username": "me", "password": "s3cr3t", "as": "somebody", "as-groups": ["team"]}
    headers = Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", user=user))).current().headers()
    assert headers["Impersonate-User"] == "somebody"
    assert headers["Impersonate-Group"] == "team"
    assert headers["authorization"].startswith("Basic ")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    user = {"token": "s3cr3t", "username": "me", "password": "s3cr3t"}
    assert "s3cr3t" not in repr(Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", user=user))).current())


@pytest.mark.parametrize(
    ("server", "exempt", "expected"),
    [
        ("https://127.0.0.1:1", "", False),
        ("https://localhost:1", "", False),
        ("https://10.1.2.3:1", "", True),
        ("https://10.1.2.3:1", "example.com, 10.0.0.0/8", False),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.org", "example.com", True),
    ],
)
def test_the_environments_proxy_is_used_as_kubectl_would(
    server: str, exempt: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", exempt)
    connection = Credentials(Settings(kubeconfig=kubeconfig(tmp_path / "config", server=server))).current()
    assert (connection.pool.proxy is not None) is expected


def test_in_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UsageError, match="no service account"):
        find_access(Settings(), tmp_path)
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text(name)
    access = find_access(Settings(), tmp_path)
    assert (access.server, access.authority, access.token_file) == (
        "https://[fd00::1]:443",
        b"ca.crt",
        tmp_path / "token",
    )
    with pytest.raises(UsageError, match="context 'x' was asked for"):
        find_access(Settings(context="x"), tmp_path)


def test_asking_a_cluster_does_not_load_the_official_client() -> None:
    """It costs each process 80 MB and seconds."""
    code = "import sys, provisioner.cluster; sys.exit('kubernetes' in sys.modules or 'pulumi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
