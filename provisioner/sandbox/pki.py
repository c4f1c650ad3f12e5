"""Certificates of a sandbox: two authorities, one identity per component.

etcd has an authority of its own, since whoever holds any certificate of an
authority that etcd trusts can read and write everything. All others are
signed by the cluster's, with the user names and groups that Kubernetes's
built-in roles are bound to, so that no component is a superuser.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)
_CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Identity:
    """Who a certificate speaks for.

    Attributes:
        file: Its name in the folder, without suffix.
        user: Common name: the user name that Kubernetes sees.
        group: Organization: the group that Kubernetes sees, or "".
        names: DNS names and IP addresses that it may serve as; () for a client only.
    """

    file: str
    user: str
    group: str = ""
    names: tuple[str, ...] = ()


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    fresh.replace(path)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(user: str, group: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """A certificate authority in a folder: `<name>.crt`, `<name>.key` and what it signed.

    Args:
        folder: Where everything is; must exist.
        name: Of the authority's own files.
        now: The time to judge by.
    """

    def __init__(self, folder: Path, name: str, now: datetime.datetime) -> None:
        self._folder = folder
        self._now = now
        self.certificate_file = folder / f"{name}.crt"
        key_file = folder / f"{name}.key"
        if not self._current(self.certificate_file):
            key = ec.generate_private_key(ec.SECP256R1())
            subject = _name(f"sandbox-{name}")
            builder = self._builder(subject, subject, key.public_key(), CA_LIFE)
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
            write_private(key_file, _key_bytes(key))
            write_private(
                self.certificate_file,
                builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            )
        loaded = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{key_file} does not hold a key of ours")
        self._key = loaded
        self._certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _CLOCK_SKEW)
            .not_valid_after(self._now + life)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    def _current(self, path: Path) -> bool:
        if not path.exists() or not path.with_suffix(".key").exists():
            return False
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc - self._now > RENEW_BEFORE

    def ensure(self, identity: Identity) -> None:
        """Issue the identity's certificate unless a current one stands there.

        It is issued anew when it expires within 30 days, speaks for other
        names, or was signed by an authority that has been replaced.
        """
        path = self._folder / f"{identity.file}.crt"
        if self._current(path) and self._speaks_for(path, identity):
            return
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(
            _name(identity.user, identity.group), self._certificate.subject, key.public_key(), LEAF_LIFE
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.names:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = [_alternative(name) for name in identity.names]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        # The key goes first: a certificate without its key counts as not there.
        path.unlink(missing_ok=True)
        write_private(path.with_suffix(".key"), _key_bytes(key))
        write_private(path, builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _speaks_for(self, path: Path, identity: Identity) -> bool:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        if certificate.subject != _name(identity.user, identity.group):
            return False
        wanted = [_alternative(name) for name in identity.names]
        try:
            found = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        except x509.ExtensionNotFound:
            found = []
        issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
        return found == wanted and issuer == x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def ensure_signing_key(path: Path) -> None:
    """Make the key that service account tokens are signed with, once; its public half is beside it as `.pub`."""
    if path.exists() and path.with_suffix(".pub").exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_private(path, _key_bytes(key))
    write_private(path.with_suffix(".pub"), public)
