"""A certificate authority of a test."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A CA of the test, and what it signs."""

    def __init__(self, folder, name):
        self.folder = folder / name
        self.folder.mkdir()
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = self._write(
            "ca.pem", self._sign(self.name, self.key, ca=True).public_bytes(serialization.Encoding.PEM)
        )

    def _write(self, name, content):
        file = self.folder / name
        beside = file.with_suffix(".new")
        beside.write_bytes(content)
        return beside.replace(file)

    def _sign(self, subject, key, *, ca=False):
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("agent.test")]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, name):
        """Write a certificate and its key; return both paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        cert = self._sign(subject, key).public_bytes(serialization.Encoding.PEM)
        return self._write(f"{name}.pem", cert), self._write(f"{name}.key", pem)
