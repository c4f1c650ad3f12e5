import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509

from provisioner.sandbox.pki import Authority, Identity, ensure_signing_key

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
SERVER = Identity("server", "kube-apiserver", names=("127.0.0.1", "localhost"))
CLIENT = Identity("client", "system:node:node-1", "system:nodes")


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_what_is_signed_is_what_was_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca", NOW)
    authority.ensure(SERVER)
    authority.ensure(CLIENT)
    ca, server, client = (load(tmp_path / f"{name}.crt") for name in ("ca", "server", "client"))
    server.verify_directly_issued_by(ca)
    client.verify_directly_issued_by(ca)
    assert client.subject.rfc4514_string() == "CN=system:node:node-1,O=system:nodes"
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(item.value) for item in names] == ["127.0.0.1", "localhost"]
    purposes = client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert x509.oid.ExtendedKeyUsageOID.SERVER_AUTH not in purposes


def test_every_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    Authority(tmp_path, "ca", NOW).ensure(CLIENT)
    ensure_signing_key(tmp_path / "sa.key")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(("days", "renewed"), [(0, False), (334, False), (336, True), (400, True)])
def test_a_certificate_is_renewed_a_month_before_its_end(tmp_path: Path, days: int, renewed: bool) -> None:
    Authority(tmp_path, "ca", NOW).ensure(CLIENT)
    before = (tmp_path / "client.crt").read_bytes()
    authority = (tmp_path / "ca.crt").read_bytes()
    Authority(tmp_path, "ca", NOW + days * DAY).ensure(CLIENT)
    assert ((tmp_path / "client.crt").read_bytes() != before) is renewed
    assert (tmp_path / "ca.crt").read_bytes() == authority


def test_a_new_authority_signs_everything_anew(tmp_path: Path) -> None:
    Authority(tmp_path, "ca", NOW).ensure(CLIENT)
    later = NOW + 3640 * DAY
    Authority(tmp_path, "ca", later - 3620 * DAY).ensure(CLIENT)
    before = (tmp_path / "ca.crt").read_bytes()
    Authority(tmp_path, "ca", later).ensure(CLIENT)
    assert (tmp_path / "ca.crt").read_bytes() != before
    load(tmp_path / "client.crt").verify_directly_issued_by(load(tmp_path / "ca.crt"))


def test_an_authority_that_was_lost_signs_everything_anew(tmp_path: Path) -> None:
    Authority(tmp_path, "ca", NOW).ensure(CLIENT)
    (tmp_path / "ca.key").unlink()
    Authority(tmp_path, "ca", NOW).ensure(CLIENT)
    load(tmp_path / "client.crt").verify_directly_issued_by(load(tmp_path / "ca.crt"))


@pytest.mark.parametrize(
    "changed",
    [
        Identity("server", "kube-apiserver", names=("127.0.0.1", "10.245.0.1")),
        Identity("server", "kube-apiserver"),
        Identity("server", "other", names=SERVER.names),
        Identity("server", "kube-apiserver", "group", names=SERVER.names),
    ],
)
def test_a_changed_identity_gets_another_certificate(tmp_path: Path, changed: Identity) -> None:
    authority = Authority(tmp_path, "ca", NOW)
    authority.ensure(SERVER)
    before = (tmp_path / "server.crt").read_bytes()
    authority.ensure(SERVER)
    assert (tmp_path / "server.crt").read_bytes() == before
    authority.ensure(changed)
    assert (tmp_path / "server.crt").read_bytes() != before


def test_the_signing_key_stays_and_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "sa.key"
    ensure_signing_key(path)
    before = path.read_bytes()
    ensure_signing_key(path)
    assert path.read_bytes() == before
    path.with_suffix(".pub").unlink()
    ensure_signing_key(path)
    assert path.with_suffix(".pub").exists()
