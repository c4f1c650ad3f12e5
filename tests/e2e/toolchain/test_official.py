"""The official installers, run for real against a vendor of our own: one that answers, hangs, lies or is not there.

The SDK and the CLI reach the vendor through a proxy, as in many companies; the proxy here answers for whatever host
they ask for, with a certificate of an authority that only these tests trust.
"""

import io
import shutil
import socket
import socketserver
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from provisioner import settings, toolchain
from provisioner.toolchain import Group, official, pins, record
from provisioner.toolchain.lock import exclusive
from provisioner.toolchain.pins import Kit
from provisioner.toolchain.work import Work

Answer = Callable[[str], bytes | None]

INSTALL_SCRIPT = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in --install-root) root="$2"; shift ;; --version) version="$2"; shift ;; esac
  shift
done
mkdir -p "$root/bin"
cp "{pulumi}" "$root/bin/pulumi"
cp "{host}" "$root/bin/pulumi-language-python"
echo '# the real one is run by the host' > "$root/bin/pulumi-language-python-exec"
"""


class Certificates:
    """An authority, and a certificate for each host that is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        self._openssl("req", "-x509", *self._key("ca"), "-out", "ca.crt", "-days", "2", "-subj", "/CN=test authority")

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True, timeout=60)

    def _key(self, name: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]

    def context(self, host: str) -> ssl.SSLContext:
        (self.folder / "san").write_text(f"subjectAltName=DNS:{host}\n")
        self._openssl("req", *self._key("host"), "-out", "host.csr", "-subj", "/CN=host")
        self._openssl(
            *("x509", "-req", "-in", "host.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", "host.crt", "-days", "2", "-extfile", "san"),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "host.crt", self.folder / "host.key")
        return context


@contextmanager
def vendor(folder: Path, answer: Answer) -> Iterator[dict[str, str]]:
    """A proxy that is the vendor itself; yields the environment in which it is used."""
    certificates = Certificates(folder)
    making = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words = self.rfile.readline().decode().split()
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with making:
                context = certificates.context(words[1].partition(":")[0])
            with suppress(OSError), context.wrap_socket(self.connection, server_side=True) as secure:
                self._serve(secure)

        def _serve(self, secure: ssl.SSLSocket) -> None:
            lines = secure.makefile("rb")
            path = lines.readline().decode().split()[1]
            body = answer(path)
            head = f"HTTP/1.1 {'404 Not Found' if body is None else '200 OK'}\r\nConnection: close\r\n"
            secure.sendall(f"{head}Content-Length: {len(body or b'')}\r\n\r\n".encode() + (body or b""))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        yield {"HTTPS_PROXY": address, "https_proxy": address, "SSL_CERT_FILE": str(certificates.authority)}
        server.shutdown()
        thread.join()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Switch to an empty cache and to another environment."""

    def switch(environment: dict[str, str]) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for key, value in environment.items():
            monkeypatch.setenv(key, value)

    return switch


def kit(name: str) -> Kit:
    return next(item for item in pins.load().kit if item.name == name)


def provide(name: str, pulumi: Path | None) -> tuple[bool, list[str]]:
    notes: list[str] = []
    wanted = tuple(pin for pin in pins.load().every() if pin.origin == kit(name))
    with exclusive(settings.cache_home() / "toolchain" / "lock", None) as lock:
        working = Work(lock, lambda line: None, notes.append)
        working.prepare()
        try:
            return official.provide(kit(name), wanted, pulumi, working), notes
        finally:
            working.finish()


def _log(name: str) -> str:
    return (settings.cache_home() / "toolchain" / "logs" / f"{name}-official.log").read_text()


def test_the_cli_and_its_language_host_come_from_the_official_installer(
    tmp_path: Path, elsewhere: Callable[[dict[str, str]], None]
) -> None:
    host = tmp_path / "host"
    real, ours = toolchain.locate("pulumi"), toolchain.locate("pulumi-language-python")
    shutil.copyfile(ours.path, host)
    script = INSTALL_SCRIPT.format(pulumi=real.path, host=host).encode()
    with vendor(tmp_path, lambda path: script if path.endswith("install.sh") else None) as environment:
        elsewhere(environment)
        assert provide("pulumi", None) == (True, [])
    found = toolchain.locate("pulumi")
    assert (found.version, found.source) == (real.version, "cache")
    assert found.path.is_relative_to(tmp_path)
    known = record.read(pins.load().find("pulumi-language-python"))
    assert known is not None
    assert known.origin == "the official installer"
    assert [file.path.name for file in known.files] == ["pulumi-language-python", "pulumi-language-python-exec"]
    assert (found.path.parent / "pulumi-language-python-exec").exists()


def test_the_provider_comes_from_the_cli(tmp_path: Path, elsewhere: Callable[[dict[str, str]], None]) -> None:
    real, pulumi = toolchain.locate("pulumi-resource-kubernetes"), toolchain.locate("pulumi")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        archive.add(real.path, arcname="pulumi-resource-kubernetes")
    body = packed.getvalue()
    with vendor(tmp_path, lambda path: body if "resource-kubernetes" in path else None) as environment:
        elsewhere(environment)
        done, notes = provide("pulumi-resource-kubernetes", pulumi.path)
    assert (done, notes) == (True, []), f"{notes} {_log('pulumi-resource-kubernetes')}"
    found = toolchain.locate("pulumi-resource-kubernetes")
    assert found.version == real.version
    assert found.path.parent.parent == toolchain.pulumi_home() / "plugins"
    assert {state.binary is not None for state in toolchain.status([Group.ENGINE])} == {True, False}


def test_an_installer_that_brings_something_else_is_not_believed(
    tmp_path: Path, elsewhere: Callable[[dict[str, str]], None]
) -> None:
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho v0.0.1\n")
    fake.chmod(0o755)
    script = INSTALL_SCRIPT.format(pulumi=fake, host=fake).encode()
    with vendor(tmp_path, lambda path: script if path.endswith("install.sh") else None) as environment:
        elsewhere(environment)
        done, notes = provide("pulumi", None)
    assert not done
    assert len(notes) == 1
    assert "0.0.1" in notes[0]
    assert notes[0].endswith("building it instead")
    assert not (settings.cache_home() / kit("pulumi").home).exists()


@pytest.mark.parametrize("name", ["pulumi", "pulumi-resource-kubernetes"])
def test_a_network_that_swallows_everything_does_not_hold_the_installation(
    name: str, elsewhere: Callable[[dict[str, str]], None]
) -> None:
    pulumi = toolchain.locate("pulumi").path
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        elsewhere({"HTTPS_PROXY": address, "https_proxy": address})
        done, notes = provide(name, pulumi)
    assert not done
    assert len(notes) == 1
    assert notes[0].startswith(f"the official installer of {name} cannot be used (")
    assert notes[0].endswith("building it instead")
    assert not (settings.cache_home() / kit(name).home).exists()


def test_a_vendor_that_is_not_there_is_said_in_one_line(elsewhere: Callable[[dict[str, str]], None]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else gets it, and nobody listens
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        elsewhere({"HTTPS_PROXY": address, "https_proxy": address})
        done, notes = provide("pulumi", None)
    assert not done
    assert len(notes) == 1
    assert "Connection refused" in notes[0]
    assert "\n" not in notes[0]
